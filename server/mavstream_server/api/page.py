"""The way from the server's address to the browser page, and API documentation that works offline."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from html import escape
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from mavstream_server.core.settings import Settings
from mavstream_server.supervisor.page_child import PageChild, PageState

router = APIRouter(include_in_schema=False)

_ASSETS = "/docs/assets"
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
_NOTICE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
_SAID = {
    PageState.OFF: ("The page is switched off", "Start the server without --no-page to get it."),
    PageState.MISSING: (
        "The page is not installed",
        "Install it with pip install 'mavstream[page]' and start the server again.",
    ),
    PageState.STARTING: ("The page is starting", "It opens by itself in a moment."),
    PageState.FAILED: (
        "The page could not be started",
        "The log of the server says why; another port is chosen with --page-port. It is tried again.",
    ),
}


def page_arguments(settings: Settings, port: int) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment of the page's process, for a server that listens on `port`."""
    tls = settings.tls_cert is not None
    # A certificate names hosts, so over TLS the page needs one of them.
    named = [name for name in settings.allow_host if "*" not in name]
    host = settings.host.strip("[]")
    if tls and named:
        host = named[0]
    elif host in ("0.0.0.0", "::", ""):
        host = "127.0.0.1"
    chosen = settings.page_port if settings.page_port is not None else (settings.port and port + 1)
    arguments = [
        *("--url", f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"),
        *("--host", settings.host, "--port", str(min(chosen, 65535))),
    ]
    for name in settings.allow_host:
        arguments += ["--allow-host", name]
    if settings.tls_cert is not None and settings.tls_key is not None:
        arguments += ["--tls-cert", str(settings.tls_cert), "--tls-key", str(settings.tls_key)]
    return arguments, {} if settings.tls_cert is None else {"SSL_CERT_FILE": str(settings.tls_cert)}


class PageTask:
    """The page's process while a server listens."""

    def __init__(self, settings: Settings) -> None:
        self.child = PageChild()
        self.url = settings.page_url
        self._settings = settings
        self._task: asyncio.Task[None] | None = None

    def start(self, port: int) -> None:
        """Start it for a server that listens on `port`, unless it is switched off."""
        if self._settings.page:
            self._task = asyncio.create_task(self.child.run(*page_arguments(self._settings, port)))

    async def stop(self) -> None:
        """Stop it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


def add_page(app: FastAPI, settings: Settings) -> None:
    """Add the page's state, and the routes `/` and `/docs`."""
    app.state.page = PageTask(settings)
    app.include_router(router)
    assets = _offline_assets()
    if assets is not None:
        app.mount(_ASSETS, StaticFiles(directory=assets), name="docs_assets")


@router.get("/")
async def open_page(request: Request) -> Response:
    """Lead to the browser page, or say why there is none."""
    page: PageTask = request.app.state.page
    if page.child.state is PageState.RUNNING:
        return RedirectResponse(page.url or _address(request, page.child.port or 0), 307)
    title, text = _SAID[page.child.state]
    again = '<meta http-equiv="refresh" content="1">' if page.child.state is PageState.STARTING else ""
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}<title>MavStream</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><style>:root{color-scheme:light '
        "dark}body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:1rem}</style>"
        f"</head><body><h1>{escape(title)}</h1><p>{escape(text)}</p>"
        '<p>The server itself works: its API is described at <a href="/docs">/docs</a>.</p></body></html>'
    )
    return HTMLResponse(
        body, headers={"content-security-policy": _NOTICE_POLICY, "cache-control": "no-store"}
    )


@router.get("/docs")
async def show_docs(request: Request) -> HTMLResponse:
    """Show the API documentation, with assets of this server if they are installed."""
    if _offline_assets() is None:
        return HTMLResponse(
            "<!doctype html><title>MavStream API</title><p>The documentation needs pip install "
            "'mavstream[page]'. The document itself is <a href='/openapi.json'>/openapi.json</a>.",
            headers={"content-security-policy": _NOTICE_POLICY},
        )
    shown = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title=f"{request.app.title} API",
        swagger_js_url=f"{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{_ASSETS}/favicon.png",
    )
    shown.headers["content-security-policy"] = _POLICY
    return shown


def _address(request: Request, port: int) -> str:
    host = request.headers["host"]
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return f"{request.url.scheme}://{name}:{port}/"


def _offline_assets() -> Path | None:
    """Return the folder with the browser code of the documentation, if the package is installed."""
    found = find_spec("fastapi_offline")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "static"
