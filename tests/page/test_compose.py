"""Queries are composed in a browser: as SQL and as operators, checked, tried and submitted."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect
from tests.support.page_rows import rows

from mavstream import Client, stream


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
    # Keys are ignored in the first moment, so that nobody chooses what has just appeared.
    page.wait_for_timeout(100)
    while wanted.get_attribute("aria-selected") is None:
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(wanted).to_have_count(0)


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
    expect(page.locator("[data-key=outcome]")).to_contain_text("valid")


def test_tab_leaves_the_editor(page: Page, base: str) -> None:
    editor = editor_of(page, base)
    page.keyboard.press("Tab")
    expect(editor).not_to_be_focused()


def test_a_query_is_composed_as_sql_and_its_rows_are_seen(page: Page, base: str, client: Client) -> None:
    editor_of(page, base)
    page.keyboard.insert_text("SELECT room, celsius FROM readings WHERE celsius > 30")
    expect(page.locator(".op[data-node=where]")).to_contain_text("celsius > 30")
    expect(page.locator("[data-key=outcome]")).to_contain_text("Admission")
    client.append("readings", rows(3))
    page.get_by_role("button", name="Try it on the last 1,000 rows").click()
    # It runs in a process that has to start first.
    expect(page.locator("#tried")).to_contain_text("answers from", timeout=65_000)
    page.locator("#submit").get_by_label("Name").fill("by_sql")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("status").last).to_contain_text("Submitted as")
    client.append("readings", [{**rows(1)[0], "room": "loft"}])
    expect(page.get_by_role("region", name="results")).to_contain_text("loft")


def node(page: Page, name: str) -> Locator:
    return page.locator(f".op[data-node={name}]")


def sql_of(page: Page) -> Locator:
    return page.get_by_label("SQL", exact=True)


def test_a_query_is_composed_of_operators_and_its_rows_are_seen(
    page: Page, base: str, client: Client
) -> None:
    page.goto(f"{base}/compose")
    page.get_by_role("button", name="Add stream readings").click()
    expect(sql_of(page)).to_have_text("SELECT *FROM readings")
    page.get_by_role("button", name="+ select").click()
    where = page.get_by_label("Condition of select")
    where.fill("celsius >")
    expect(node(page, "select")).to_have_class(re.compile("wrong"))
    expect(page.locator("[data-key=operator-select]")).to_contain_text("something is missing")
    where.fill("celsius > 90")
    expect(page.locator("[data-key=outcome]")).to_contain_text("valid")
    expect(node(page, "select")).to_contain_text("at, room, celsius")
    expect(sql_of(page)).to_contain_text("WHERE celsius > 90")
    page.locator("#submit").get_by_label("Name").fill("by_operators")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Waiting for the first rows")).to_be_visible()
    client.append("readings", [{**rows(1, 95.0)[0], "room": "sauna"}])
    expect(page.get_by_role("region", name="results")).to_contain_text("sauna")


def test_sql_and_operators_show_the_same_graph(page: Page, base: str) -> None:
    editor_of(page, base)
    page.keyboard.insert_text("SELECT room FROM readings WHERE celsius > 30")
    expect(node(page, "where")).to_contain_text("celsius > 30")
    node(page, "where").click()
    page.get_by_label("Condition of where").fill("celsius > 40")
    expect(sql_of(page)).to_contain_text("celsius > 40")
    sql_of(page).click()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("SELECT room FROM readings WHERE celsius > 50 AND")
    expect(page.get_by_text("of the last SQL that could be read")).to_be_visible()
    page.keyboard.insert_text(" room = 'hall'")
    expect(page.get_by_label("Condition of where")).to_have_value(re.compile("50.*hall"))
    expect(sql_of(page)).to_be_focused()


def test_the_canvas_is_used_with_the_keyboard_alone(page: Page, base: str) -> None:
    page.goto(f"{base}/compose")
    page.get_by_role("button", name="Add stream readings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Stream of readings")).to_be_focused()
    page.get_by_role("button", name="+ select").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Condition of select")).to_be_focused()
    page.keyboard.type("celsius > 30")
    page.get_by_role("button", name="+ aggregate").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Columns, one per line of aggregate")).to_be_focused()
    page.keyboard.type("n = count(*)")
    expect(page.locator("[data-key=outcome]")).to_contain_text("valid")
    # Go to the first operator, let the last one read it, take that back.
    node(page, "aggregate").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(node(page, "readings")).to_be_focused()
    page.keyboard.press("c")
    expect(page.locator(".canvas-help")).to_contain_text("Choose the operator that reads readings")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(node(page, "aggregate")).to_be_focused()
    expect(page.get_by_label("Reads of aggregate")).to_have_value("readings")
    page.keyboard.press("Control+z")
    expect(page.get_by_label("Reads of aggregate")).to_have_value("select")
    # Delete the one between, and bring it back.
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Delete")
    expect(node(page, "select")).to_have_count(0)
    expect(sql_of(page)).not_to_contain_text("WHERE")
    expect(node(page, "readings")).to_be_focused()
    page.keyboard.press("Control+z")
    expect(node(page, "select")).to_be_visible()
    page.keyboard.press("Control+Shift+z")
    expect(node(page, "select")).to_have_count(0)


def test_operators_are_dragged_onto_the_canvas_and_connected(page: Page, base: str) -> None:
    page.goto(f"{base}/compose")
    page.get_by_role("button", name="Add stream readings").drag_to(page.locator(".canvas"))
    page.get_by_role("button", name="+ select").drag_to(
        page.locator(".canvas"), target_position={"x": 9, "y": 9}
    )
    expect(page.locator("[data-key=operator-select]")).to_contain_text("'input' is required")
    expect(node(page, "readings")).to_have_attribute("aria-label", re.compile("nothing reads readings"))
    node(page, "readings").locator(".op-port").drag_to(node(page, "select"))
    expect(page.get_by_label("Reads of select")).to_have_value("readings")
    page.get_by_label("Condition of select").fill("celsius > 30")
    expect(sql_of(page)).to_contain_text("WHERE celsius > 30")
    page.get_by_role("button", name="+ distinct").drag_to(node(page, "readings"))
    expect(page.get_by_label("Reads of distinct")).to_have_value("readings")
    expect(sql_of(page)).to_contain_text("DISTINCT")
    page.locator(".canvas-cut").first.click(force=True)
    expect(page.get_by_text("of the last complete graph")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("of the last complete graph")).to_have_count(0)


def test_a_query_reads_the_results_of_another(page: Page, base: str, client: Client) -> None:
    upstream = client.submit(stream("readings").where("celsius > 30"), name="hot_ones")
    page.goto(f"{base}/queries")
    expect(page.get_by_text("hot_ones").first).to_be_visible()  # the page knows it
    editor_of(page, base)
    page.keyboard.type("SELECT room, at FROM hot")
    pick(page, "hot_ones")
    expect(page.locator("[data-key=outcome]")).to_contain_text("valid")
    expect(node(page, "hot_ones")).to_contain_text("at, room, celsius")
    node(page, "hot_ones").click()
    expect(page.get_by_label("Stream of hot_ones")).to_have_value("query:hot_ones")
    upstream.delete()


def test_columns_are_written_by_a_click(page: Page, base: str) -> None:
    editor_of(page, base)
    page.keyboard.insert_text(
        "SELECT count(*) AS n FROM TUMBLE(readings, at, INTERVAL '1' SECOND) GROUP BY window_end"
    )
    node(page, "result").click()
    page.get_by_label("Group by of result").click()
    page.get_by_role("button", name="Write room into the field").click()
    expect(node(page, "result")).to_contain_text("by room")


def test_plans_and_sql_are_exported_and_imported(page: Page, base: str, tmp_path: Path) -> None:
    editor_of(page, base)
    page.keyboard.insert_text("SELECT room FROM readings WHERE celsius > 30")
    saved = {}
    for name in ("SQL", "plan"):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download {name}").click()
        saved[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[name])
    assert saved["SQL"].read_text() == "SELECT room FROM readings WHERE celsius > 30"
    assert json.loads(saved["plan"].read_text())["nodes"]["where"]["where"] == "celsius > 30"
    page.reload()
    page.get_by_label("File to import").set_input_files(saved["plan"])
    expect(sql_of(page)).to_contain_text("WHERE celsius > 30")
    page.reload()
    page.get_by_label("File to import").set_input_files(saved["SQL"])
    expect(node(page, "where")).to_contain_text("celsius > 30")
    page.get_by_text("Paste it").click()
    page.get_by_label("Plan as JSON, or SQL").fill('{"root": ')
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("status").last).to_contain_text("the text is not JSON")


def test_a_phone_composes_with_taps(chromium: Browser, base: str) -> None:
    context = chromium.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, color_scheme="dark"
    )
    page = context.new_page()
    page.goto(f"{base}/compose")
    page.get_by_role("button", name="Add stream readings").tap()
    expect(node(page, "readings")).to_be_visible()
    page.get_by_role("button", name="+ select").tap()
    page.get_by_label("Condition of select").fill("celsius > 30")
    node(page, "readings").tap()
    page.get_by_role("button", name="+ project").tap()
    page.get_by_label("Columns, one per line of project").fill("celsius")
    expect(sql_of(page)).to_contain_text("SELECT celsius")
    expect(page.locator("[data-key=outcome]")).to_contain_text("valid")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
