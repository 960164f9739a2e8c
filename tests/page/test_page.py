"""The page in a browser: what it shows, and what it changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.support.page_rows import HOT, feeding, rows

from mavstream import Client, stream
from mavstream._server_process import ServerProcess


def test_the_overview_shows_each_class_and_that_nothing_is_wrong(page: Page, base: str, hot: str) -> None:
    page.goto(base)
    expect(page.get_by_role("row", name=re.compile("alarms"))).to_contain_text("50 s")
    expect(page.locator("#now")).to_contain_text("Nothing is wrong")
    expect(page.get_by_role("link", name="Overview", exact=True)).to_have_attribute("aria-current", "page")


def test_the_server_leads_to_the_page(page: Page, server: ServerProcess, base: str) -> None:
    page.goto(f"{server.url}/")
    assert page.url == f"{base}/"
    expect(page.get_by_role("heading", name="Classes")).to_be_visible()


def test_a_query_shows_its_operators_rows_and_reasons(page: Page, base: str, hot: str) -> None:
    page.goto(f"{base}/queries/{hot}")
    graph = page.get_by_role("img", name=f"Operators of {hot}")
    expect(graph).to_contain_text("select celsius > 30")
    expect(graph).to_contain_text("answer")
    expect(page.get_by_role("region", name="results")).to_contain_text("room2")
    expect(page.locator("[data-key=reasons]")).to_contain_text(re.compile(r"It has read \d+ rows"))
    expect(page.locator("pre").first).to_contain_text("WHERE celsius > 30")


def test_new_rows_arrive_without_a_reload(page: Page, base: str, hot: str, client: Client) -> None:
    page.goto(f"{base}/queries/{hot}")
    expect(page.get_by_role("region", name="results")).to_be_visible()
    client.append("readings", [{**rows(1)[0], "room": "attic"}])
    expect(page.get_by_role("region", name="results")).to_contain_text("attic")


def test_why_there_are_no_results_is_answered(page: Page, base: str, client: Client) -> None:
    query = client.submit(stream("readings").where("celsius > 1000000"), name="never")
    client.append("readings", rows(300))
    page.goto(f"{base}/queries/{query.id}")
    expect(page.locator("[data-key=reasons]")).to_contain_text(re.compile(r"passes on 0 % of them"))
    expect(page.get_by_text("No answers yet; the reasons are below.")).to_be_visible()
    query.delete()


def test_a_query_that_is_deleted_leaves_other_views_alone(
    page: Page, context: BrowserContext, base: str, client: Client
) -> None:
    query = client.submit(HOT, name="short_lived", class_="comfort")
    page.goto(f"{base}/queries/{query.id}")
    expect(page.get_by_role("heading", name="short_lived")).to_be_visible()
    query.delete()
    expect(page.get_by_text("there is no query 'short_lived", exact=False)).to_be_visible()
    expect(page.locator("header.top")).to_contain_text("live")
    expect(page.locator("#disconnected")).to_have_count(0)
    beside = context.new_page()
    beside.goto(base)
    expect(beside.get_by_role("heading", name="Classes")).to_be_visible()


def test_the_search_keeps_what_fits(page: Page, base: str, hot: str) -> None:
    page.goto(f"{base}/queries")
    page.get_by_role("searchbox").fill("no such query")
    expect(page.get_by_text("No query fits.")).to_be_visible()
    page.get_by_role("searchbox").fill("readings hot")
    expect(page.get_by_role("link", name="hot", exact=True)).to_be_visible()


def test_targets_are_changed_and_reported(page: Page, base: str, hot: str, client: Client) -> None:
    page.goto(f"{base}/queries/{hot}")
    expect(page.get_by_label("Latency target", exact=True)).to_have_value("500ms")
    page.get_by_label("Statistic of the latency target").select_option("p99")
    page.get_by_label("Latency target", exact=True).fill("250ms")
    page.get_by_label("Memory at most").fill("64MB")
    page.get_by_label("Rows/s at least").fill("5")
    page.get_by_label("Loss at most").fill("1%")
    page.get_by_role("button", name="Set targets").click()
    expect(page.locator("[data-key=qos]")).to_contain_text("latency p99 250 ms")
    expect(page.locator("[data-key=qos]")).to_contain_text("memory")
    expect(page.locator("[data-key=qos]")).to_contain_text("throughput")
    assert client.query(hot).info().spec.qos.max_loss == 0.01
    page.get_by_label("Memory at most").fill("")
    page.get_by_label("Latency target", exact=True).fill("soon")
    page.get_by_role("button", name="Set targets").click()
    expect(page.get_by_role("status").last).to_contain_text("soon")
    page.goto(f"{base}/queries")
    row = page.get_by_role("row", name=re.compile("^hot "))
    expect(row).to_contain_text("p99 at most 250ms, memory at most 64MB, at least 5 rows/s, loss at most 1%")


def test_colours_follow_the_system_and_the_viewer(chromium: Browser, base: str) -> None:
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(base)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light or dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    context.close()


def test_nothing_is_loaded_from_elsewhere_and_scripts_need_a_nonce(page: Page, base: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(base)
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert "'unsafe-eval'" not in policy
    expect(page.get_by_role("heading", name="Classes")).to_be_visible()
    assert {url.split("/")[2] for url in asked if not url.startswith("data:")} == {base.split("/")[2]}


def test_the_documentation_of_the_api_needs_no_other_network(page: Page, server: ServerProcess) -> None:
    page.goto(f"{server.url}/docs")
    expect(
        page.get_by_text("POST /v1/queries", exact=False).or_(page.get_by_text("/v1/queries/validate"))
    ).to_be_visible()


def test_other_sites_and_unknown_hosts_are_refused(base: str) -> None:
    assert httpx.get(base, headers={"host": "evil.example"}).status_code == 403
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "origin": "http://evil.example",
    }
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    assert httpx.get(base + path, headers=upgrade).status_code == 403
    assert httpx.post(base, headers={"origin": "http://127.0.0.1:1"}).status_code == 403


def test_a_lost_server_is_told_and_found_again(
    context: BrowserContext, tmp_path: Path, own_page: Callable[[ServerProcess], str]
) -> None:
    first = ServerProcess(tmp_path).wait_ready()
    port = first.url.rpartition(":")[2]
    try:
        page = context.new_page()
        page.goto(own_page(first))
        expect(page.get_by_role("heading", name="Classes")).to_be_visible()
        first.close()
        expect(page.locator("#disconnected")).to_contain_text("goes on by itself")
        second = ServerProcess(tmp_path, "--port", port).wait_ready()
        try:
            expect(page.locator("#disconnected")).to_have_count(0)
            expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
        finally:
            second.close()
    finally:
        first.close()


def test_a_priority_is_changed_and_seen(page: Page, base: str, client: Client) -> None:
    page.goto(f"{base}/streams")
    page.get_by_label("Priority of comfort").fill("4")
    page.get_by_role("button", name="Save comfort").click()
    expect(page.get_by_role("status").last).to_contain_text("Class comfort has priority 4")
    page.goto(base)
    expect(page.get_by_role("row", name=re.compile("^comfort"))).to_contain_text("4")
    assert {one.name: one.priority for one in client.classes()}["comfort"] == 4


def test_a_stream_is_created_and_takes_a_file(page: Page, base: str, client: Client, tmp_path: Path) -> None:
    page.goto(f"{base}/streams")
    page.get_by_text("Create a stream").click()
    page.get_by_label("Name").first.fill("doors")
    page.get_by_label("Fields").fill("home int, open bool null")
    page.get_by_role("button", name="Create", exact=True).first.click()
    expect(page.get_by_role("status").last).to_contain_text("Stream doors was created")
    file = tmp_path / "doors.csv"
    file.write_text("home,open\n1,true\n2,\n")
    page.locator("[data-key=stream-doors] > summary").click()
    page.get_by_label("Rows for doors").set_input_files(file)
    expect(page.locator("[data-key=stream-doors]")).to_contain_text("2 rows of doors.csv were appended")
    assert client.stream_info("doors").position == 2


def test_policies_are_compared_and_then_one_is_switched_to(
    page: Page, base: str, hot: str, client: Client
) -> None:
    page.goto(f"{base}/scheduler")
    with feeding(client):
        expect(page.locator("#lanes")).to_be_visible()
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#compared")).to_contain_text("measured now", timeout=120_000)
    page.get_by_role("button", name="Switch to abd").click()
    expect(page.get_by_text("The policy is abd now.")).to_be_visible()
    assert client.scheduler().policy == "abd"
    page.get_by_role("button", name="Switch to cqc").click()
    expect(page.get_by_text("The policy is cqc now.")).to_be_visible()


def test_decisions_are_shown_under_an_overload(page: Page, base: str, client: Client) -> None:
    client.set_optimizer(period="100ms")
    tight = client.submit(HOT, name="tight", class_="comfort", qos={"latency": {"p95": "1us"}})
    beside = client.submit(HOT.where("celsius > 31"), name="beside", class_="comfort")
    client.put_class("comfort", 1, latency="1us")
    page.goto(base)
    with feeding(client):
        expect(page.locator("#decisions li").first).to_contain_text("tight")
        expect(page.locator("#now")).to_contain_text("missed target")
        expect(page.locator("#now")).to_contain_text("Class comfort is above its target")
    client.put_class("comfort", 1, "Keeps statistics")
    tight.delete()
    beside.delete()
