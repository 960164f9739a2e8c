"""Who can use the page, and with what: a phone, the keyboard alone, a token of a role."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from mavstream import Client
from mavstream._server_process import ServerProcess

_NAMED = "document.activeElement.ariaLabel || document.activeElement.textContent.trim()"


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with a name has the focus."""
    for _ in range(80):
        if page.evaluate(_NAMED) == name:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab never reached {name!r}")


@pytest.mark.parametrize("path", ["/", "/queries", "/queries/hot", "/compose", "/streams", "/scheduler"])
def test_a_phone_shows_every_view_without_scrolling_sideways(
    chromium: Browser, base: str, hot: str, path: str
) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(base + path.replace("hot", hot))
    expect(page.locator(".card").first).to_be_visible()
    if path == "/streams":
        page.locator("[data-key=stream-readings] > summary").click()
        expect(page.get_by_role("region", name="Newest rows of readings")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    links = page.locator("header.top nav a")
    assert links.count() == 5
    for box in (one.bounding_box() for one in links.all()):
        assert box is not None
        # Nothing of it is cut off, and fingers have room.
        assert box["x"] + box["width"] <= 390
        assert box["height"] >= 30
    context.close()


def test_a_query_is_paused_and_resumed_with_the_keyboard_alone(
    page: Page, base: str, hot: str, client: Client
) -> None:
    page.goto(f"{base}/queries")
    expect(page.get_by_role("link", name="hot", exact=True)).to_be_visible()
    tab_to(page, "Pause hot")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row", name=re.compile("^hot "))).to_contain_text("paused")
    tab_to(page, "Resume hot")
    page.keyboard.press("Space")
    expect(page.get_by_role("row", name=re.compile("^hot "))).to_contain_text("running")
    assert client.query(hot).info().state.value == "running"


def test_a_priority_is_changed_with_the_keyboard_alone(page: Page, base: str, client: Client) -> None:
    client.put_class("spare", 2)
    page.goto(base)
    expect(page.get_by_role("heading", name="Classes")).to_be_visible()
    tab_to(page, "Streams")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Priority of spare")).to_be_visible()
    tab_to(page, "Priority of spare")
    page.keyboard.press("Control+a")
    page.keyboard.type("5")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").last).to_contain_text("Class spare has priority 5")
    assert {one.name: one.priority for one in client.classes()}["spare"] == 5
    client.delete_class("spare")


def test_a_policy_is_switched_to_with_the_keyboard_alone(page: Page, base: str, client: Client) -> None:
    before = client.scheduler()
    page.goto(f"{base}/scheduler")
    expect(page.get_by_label("Policy", exact=True)).to_be_visible()
    page.keyboard.press("Tab")
    tab_to(page, "Policy")
    page.keyboard.type("fifo")
    expect(page.get_by_label("Policy", exact=True)).to_have_value("fifo")
    expect(page.locator("#options-fifo")).to_be_visible()
    tab_to(page, "Switch")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").last).to_contain_text("The policy is fifo now.")
    assert client.scheduler().policy == "fifo"
    client.set_scheduler(before.policy, **before.options)


def test_the_navigation_can_be_skipped(page: Page, base: str) -> None:
    page.goto(base)
    expect(page.get_by_role("heading", name="Classes")).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate(_NAMED) == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#main') !== null")


def test_a_token_is_asked_for_and_shows_what_its_role_may_do(
    context: BrowserContext, tmp_path: Path, own_page: Callable[[ServerProcess], str]
) -> None:
    env = {"MAVSTREAM_TOKENS": "admin:topsecret,client:lesssecret"}
    running = ServerProcess(tmp_path, env=env).wait_ready()
    try:
        with Client(running.url, token="topsecret") as admin:
            admin.create_stream(name="doors", fields=[{"name": "home", "type": "int"}])
        base = own_page(running)
        page = context.new_page()
        page.goto(base)
        page.get_by_label("Token").fill("guessed")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know this token")
        page.get_by_label("Token").fill("lesssecret")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Classes")).to_be_visible()
        expect(page.locator("header.top")).to_contain_text("client")
        assert "lesssecret" not in page.content()
        assert "lesssecret" not in httpx.get(base).text
        assert all(cookie["httpOnly"] for cookie in context.cookies())
        _has_the_rights_of_a_client(page, base)
        page.get_by_role("link", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    finally:
        running.close()


def _has_the_rights_of_a_client(page: Page, base: str) -> None:
    page.goto(f"{base}/queries")
    expect(page.get_by_role("link", name="Compose a query").first).to_be_visible()
    page.goto(f"{base}/scheduler")
    expect(page.get_by_text("An administrator can choose another one.")).to_be_visible()
    expect(page.get_by_role("button", name="Switch")).to_have_count(0)
    page.goto(f"{base}/streams")
    expect(page.get_by_text("Priorities are changed by administrators.")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Save"))).to_have_count(0)
    page.locator("[data-key=stream-doors] > summary").click()
    expect(page.get_by_text("It has no rows yet")).to_be_visible()
    expect(page.get_by_label("Rows for doors")).to_have_count(0)
    send = "fetch('/streams/doors/files/a.csv', {method: 'POST', body: 'home'}).then(one => one.status)"
    assert page.evaluate(send) == 403
