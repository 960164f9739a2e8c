"""One server with a page, and one browser, for all tests of the page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.support.page_rows import HOT, rows
from tests.support.servers.running_server import eventually

from mavstream import Client
from mavstream._server_process import ServerProcess

HOW = "needs Chromium: apt-get install -y --no-install-recommends chromium fonts-dejavu-core"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            # One browser and one server for all of them: they run in one process.
            item.add_marker(pytest.mark.xdist_group("page"))


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    # Not of the session: while Playwright runs, no other test could run an event loop.
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(HOW)
        pytest.skip(HOW)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with its page, and a stream `readings` with a class and a query."""
    running = ServerProcess(tmp_path_factory.mktemp("page"), "--page")
    try:
        running.wait_ready(4 * PATIENCE_MS / 1000)
        with Client(running.url) as client:
            fields = "at timestamp, room string, celsius float"
            client.create_stream(name="readings", fields=_fields(fields), event_time="at")
            client.put_class("alarms", 6, "Wakes people up", latency="50s")
            client.put_class("comfort", 1, "Keeps statistics")
        yield running
    finally:
        running.close()


def _fields(text: str) -> list[dict[str, str]]:
    return [dict(zip(("name", "type"), each.split(), strict=True)) for each in text.split(", ")]


@pytest.fixture(scope="package")
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.fixture(scope="package")
def hot(client: Client) -> str:
    """A running query that has given rows."""
    query = client.submit(HOT, name="hot", class_="alarms", qos={"latency": {"p95": "500ms"}})
    client.append("readings", rows(20))
    return query.id


def page_of(server: ServerProcess) -> str:
    """Return the page's address once it is served."""
    eventually(lambda: any(event.get("event") == "page is served" for event in server.events()), "the page")
    return httpx.get(f"{server.url}/").headers["location"].rstrip("/")


@pytest.fixture(scope="package")
def base(server: ServerProcess) -> str:
    return page_of(server)


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context(viewport={"width": 1280, "height": 800})
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, base: str) -> Iterator[Page]:
    """A tab; errors in its console fail the test."""
    made = context.new_page()
    errors: list[str] = []
    made.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    assert not errors


@pytest.fixture
def own_page() -> Iterator[Callable[[ServerProcess], str]]:
    """Return a starter of the page of a server, with `mavstream page`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(server: ServerProcess) -> str:
        command = [sys.executable, "-m", "mavstream_page.commands", "--url", server.url, "--port", "0"]
        process = subprocess.Popen([*command, "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{int(process.stdout.readline())}"

    yield start
    for process in started:
        # It ends when nobody holds the other end of its standard input.
        process.communicate(timeout=30)
