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
TARGETS = {"alarms": "60ms", "control": "150ms", "comfort": "400ms"}


def main() -> None:
    """Run the demo on a server of its own and take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        server = ServerProcess(Path(data), "--page").wait_ready()
        try:
            demo = [
                sys.executable,
                "-m",
                "mavstream",
                "demo",
                "--url",
                server.url,
                "--seconds",
                "600",
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
        page = _open(browser, f"{url}/")
        expect(page.get_by_role("row").filter(has_text="comfort")).to_contain_text("7", timeout=120_000)
        base = page.url.rstrip("/")
        query = _promise(url)
        # Two tabs stay open meanwhile, so that their histories are kept.
        watching = _open(browser, f"{base}/queries/{query}")
        page.wait_for_timeout(WARM_UP_MS)
        _picture(page, "overview")
        _picture(watching, "query")
        for name in ("queries", "streams"):
            _picture(_open(browser, f"{base}/{name}"), name)
        compose = _open(browser, f"{base}/compose")
        compose.get_by_label("SQL", exact=True).fill(SQL)
        compose.get_by_role("button", name="Try it on").click()
        expect(compose.locator("#tried")).to_be_visible(timeout=60_000)
        _picture(compose, "compose")
        scheduler = _open(browser, f"{base}/scheduler")
        scheduler.get_by_role("button", name="Compare").click()
        expect(scheduler.locator("#compared")).to_be_visible(timeout=180_000)
        _picture(scheduler, "scheduler")
        _picture(_open(browser, base, color_scheme="dark"), "dark")
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
    page.set_default_timeout(60_000)
    page.goto(address)
    page.wait_for_selector(".card, .now")
    return page


def _picture(page: Page, name: str) -> None:
    page.wait_for_timeout(4000)
    file = FOLDER / f"{name}.png"
    page.screenshot(path=file, full_page=name != "phone")
    # A palette of 128 colours makes the files a third as large.
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128).save(file, optimize=True)
    print(file)


if __name__ == "__main__":
    main()
