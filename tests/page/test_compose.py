"""Queries are composed in a browser: as SQL and as operators, checked, tried and submitted."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Locator, Page, expect

from mavstream import Client

expect.set_options(timeout=30_000)


def rows(count: int, celsius: float = 35.0, room: str | None = None) -> list[dict[str, object]]:
    start = datetime.now(UTC)
    return [
        {
            "at": (start + timedelta(milliseconds=n)).isoformat(),
            "room": room or f"room{n % 3}",
            "celsius": celsius + n,
        }
        for n in range(count)
    ]


def editor_of(page: Page, base: str) -> Locator:
    """Open the composer and put the caret into its editor."""
    page.goto(f"{base}/compose")
    editor = page.get_by_label("SQL", exact=True)
    editor.click()
    return editor


def pick(page: Page, name: str) -> None:
    """Choose a completion with the keyboard alone."""
    wanted = page.locator(".cm-tooltip-autocomplete li", has_text=name).first
    expect(wanted).to_be_visible()
    while wanted.get_attribute("aria-selected") is None:
        page.keyboard.press("ArrowDown")
    while wanted.is_visible():
        # Enter is ignored in the first moment, so that nobody chooses what just appeared.
        page.keyboard.press("Enter")


def test_names_are_completed_with_the_keyboard(page: Page, base: str) -> None:
    editor = editor_of(page, base)
    page.keyboard.type("SELECT ro")
    pick(page, "room")
    page.keyboard.type(", av")
    pick(page, "avg")
    page.keyboard.type("cel")
    pick(page, "celsius")
    page.keyboard.press("End")
    page.keyboard.type(" FROM re")
    pick(page, "readings")
    expect(editor).to_have_text("SELECT room, avg(celsius) FROM readings")


def test_errors_are_marked_where_they_are_while_one_types(page: Page, base: str) -> None:
    editor = editor_of(page, base)
    page.keyboard.insert_text("SELECT room\nFROM readings\nWHERE celsuis > 30")
    expect(page.locator("#sql-error")).to_contain_text("Line 3, column 7")
    expect(page.locator(".sql-wrong")).to_have_text("celsuis")
    expect(editor).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    page.keyboard.press("F8")
    page.keyboard.insert_text("celsius")
    expect(page.locator(".sql-wrong")).to_have_count(0)
    expect(editor).to_have_attribute("aria-invalid", "false")
    expect(page.locator("[data-key=graph]")).to_contain_text("valid")


def test_tab_leaves_the_editor(page: Page, base: str) -> None:
    editor = editor_of(page, base)
    page.keyboard.press("Tab")
    expect(editor).not_to_be_focused()


def test_a_query_is_composed_as_sql_and_its_rows_are_seen(page: Page, base: str, client: Client) -> None:
    editor_of(page, base)
    page.keyboard.insert_text("SELECT room, celsius FROM readings WHERE celsius > 30")
    graph = page.get_by_role("img", name="Operators of the plan")
    expect(graph).to_contain_text("select celsius > 30")
    expect(page.locator("[data-key=graph]")).to_contain_text("Admission")
    client.append("readings", rows(3))
    page.get_by_role("button", name="Try it on the last 1,000 rows").click()
    expect(page.locator("#tried")).to_contain_text("answers from")
    page.locator("#submit").get_by_label("Name").fill("by_sql")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("status").last).to_contain_text("Submitted as")
    client.append("readings", rows(1, room="loft"))
    expect(page.get_by_role("region", name="results")).to_contain_text("loft")


def test_a_query_is_composed_of_operators_and_its_rows_are_seen(
    page: Page, base: str, client: Client
) -> None:
    page.goto(f"{base}/compose")
    page.get_by_role("button", name="Operators", exact=True).click()
    page.get_by_role("button", name="+ source").click()
    page.get_by_label("stream of source").select_option("readings")
    expect(page.get_by_role("img", name="Operators of the plan")).to_contain_text("source readings")
    page.get_by_role("button", name="+ select").click()
    where = page.get_by_label("where of select")
    where.fill("celsius >")
    where.press("Tab")
    expect(page.locator("[data-key=step-select]")).to_contain_text("see the error")
    where.fill("celsius > 90")
    where.press("Tab")
    expect(page.locator("[data-key=graph]")).to_contain_text("valid")
    expect(page.locator("[data-key=step-select]")).to_contain_text("celsius float")
    page.locator("#submit").get_by_label("Name").fill("by_steps")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Waiting for the first rows")).to_be_visible()
    client.append("readings", rows(1, 95.0, "sauna"))
    expect(page.get_by_role("region", name="results")).to_contain_text("sauna")
    page.get_by_role("button", name="SQL", exact=True).click()
    expect(page.get_by_label("SQL", exact=True)).to_contain_text(re.compile(r"WHERE celsius > 90"))
