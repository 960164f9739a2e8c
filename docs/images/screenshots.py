"""Pictures of the page during the demo, for README and docs: `make screenshots`. Needs Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from mavstream import Client
from mavstream._server_process import ServerProcess

FOLDER = Path(__file__).parent / "page"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
SQL = """SELECT room, window_end, avg(celsius) AS mean, count(*) AS n
FROM TUMBLE(TABLE temperature, DESCRIPTOR(at), INTERVAL '1' SECOND)
WHERE celsius > 5
GROUP BY room, window_start, window_end"""
WARM_UP_MS = 70_000
"""Charts show at least a minute."""
PATIENCE_S = 300.0
TARGETS = {"alarms": "60ms", "control": "150ms", "comfort": "400ms"}
expect.set_options(timeout=1000 * PATIENCE_S)


def main() -> None:
    """Run the demo on a server of its own and take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        server = ServerProcess(Path(data), "--page").wait_ready(PATIENCE_S)
        try:
            demo = [
                sys.executable,
                "-m",
                "mavstream",
                "demo",
                "--url",
                server.url,
                "--seconds",
                "3600",
                "--json",
            ]
            running = subprocess.Popen(demo, stdout=subprocess.DEVNULL)
            try:
                _take(server.url)
            finally:
                running.terminate()
                running.wait()
        finally:
            server.close()


def _take(url: str) -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        overview = _open(browser, f"{url}/")
        expect(overview.get_by_role("row").filter(has_text="comfort")).to_contain_text("7")
        base = overview.url.rstrip("/")
        query = _promise(url)
        # Three tabs stay open meanwhile, so that their histories are kept.
        watching = _open(browser, f"{base}/queries/{query}")
        streams = _open(browser, f"{base}/streams")
        streams.locator("[data-key=stream-temperature] > summary").click()
        queries = _open(browser, f"{base}/queries")
        overview.wait_for_timeout(WARM_UP_MS)
        _pictures(overview, "overview")
        _pictures(watching, "query")
        _pictures(queries, "queries")
        _pictures(streams, "streams")
        compose = _open(browser, f"{base}/compose")
        compose.get_by_label("SQL", exact=True).fill(SQL)
        compose.get_by_role("button", name="Try it on").click()
        expect(compose.locator("#tried")).to_be_visible()
        _pictures(compose, "compose")
        scheduler = _open(browser, f"{base}/scheduler")
        expect(scheduler.locator("#lanes")).to_be_visible()
        scheduler.get_by_role("button", name="Compare").click()
        expect(scheduler.locator("#compared")).to_be_visible()
        _pictures(scheduler, "scheduler")
        _picture(_open(browser, base, viewport={"width": 390, "height": 844}), "phone")
        browser.close()


def _promise(url: str) -> str:
    """Give the classes and a query targets; returns the query's name."""
    with Client(url) as client:
        for one in client.classes():
            if one.name in TARGETS:
                client.put_class(one.name, one.priority, one.description, TARGETS[one.name])
        query = next(one for one in client.queries() if one.spec.name.endswith("heat_up"))
        client.query(query.id).update(qos={"latency": {"p95": "200ms"}})
        return query.spec.name


def _open(browser: Browser, address: str, **options: object) -> Page:
    given = {"viewport": {"width": 1280, "height": 800}, **options}
    page = browser.new_context(**given).new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    page.goto(address)
    page.wait_for_selector(".card, .now")
    return page


def _pictures(page: Page, name: str) -> None:
    """Take a view in light and in dark."""
    _picture(page, name)
    page.emulate_media(color_scheme="dark")
    _picture(page, f"{name}-dark")
    page.emulate_media(color_scheme="light")


def _picture(page: Page, name: str) -> None:
    page.wait_for_timeout(4000)
    expect(page.locator("#disconnected")).to_have_count(0)
    file = FOLDER / f"{name}.png"
    page.screenshot(path=file, full_page=name != "phone")
    # A palette of 128 colours makes the files a third as large.
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128).save(file, optimize=True)
    print(file)


if __name__ == "__main__":
    main()
