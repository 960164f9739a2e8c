"""The application: the addresses of the views, and who may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from nicegui import ui

from mavstream_page.access.guard import Guard
from mavstream_page.access.sessions import Sessions
from mavstream_page.components.screen import Screen, View
from mavstream_page.data.hub import Hub, Hubs
from mavstream_page.data.uploads import MOST_BYTES, Upload, too_large
from mavstream_page.views.compose import ComposeView
from mavstream_page.views.overview import OverviewView
from mavstream_page.views.queries import QueriesView
from mavstream_page.views.query import QueryView
from mavstream_page.views.scheduler import SchedulerView
from mavstream_page.views.signin import show_sign_in
from mavstream_page.views.streams import StreamsView

_ASSETS = Path(__file__).parent / "assets"
_HEAD = (
    '<link rel="stylesheet" href="/assets/page.css"><link rel="stylesheet" href="/assets/content.css">'
    '<link rel="stylesheet" href="/assets/composer.css"><script src="/assets/theme.js"></script>'
)


def create_app(url: str, host: str, allow_host: Sequence[str], *, secure: bool = False) -> FastAPI:
    """Return the application for a server; `secure` says whether it is served over TLS."""
    hubs, sessions = Hubs(url), Sessions()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await hubs.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.mount("/assets", StaticFiles(directory=_ASSETS), name="assets")
    ui.add_head_html(_HEAD, shared=True)

    async def show(request: Request, make: Callable[[Hub], View]) -> None:
        token = sessions.token(request.state.session)
        hub = hubs.of(token)
        view = make(hub)
        ui.page_title(f"{view.title} · MavStream")
        watch = hub.watch(view.keys, _nothing)
        await hub.first()
        if hub.refused is not None:
            watch.close()
            await show_sign_in(request.state.session, hubs, sessions, token is not None)
            return
        Screen(view, token is not None).refresh()
        watch.close()

    @app.get("/signout")
    async def sign_out(request: Request) -> Response:
        token = sessions.sign_out(request.state.session)
        if token is not None:
            await hubs.drop(token)
        return RedirectResponse("/", 303)

    @app.post("/streams/{stream}/files/{name}")
    async def upload(request: Request, stream: str, name: str) -> Response:
        hub = hubs.of(sessions.token(request.state.session))
        before, size = hub.uploads.get(stream), int(request.headers.get("content-length", 0))
        if hub.info is None or hub.info.role.value not in ("admin", "feeder"):
            return PlainTextResponse("only feeders and administrators append rows: sign in as one", 403)
        if before is not None and before.running:
            return PlainTextResponse(f"{before.name} is on its way to {stream}: wait for its end", 409)
        if size > MOST_BYTES:
            return PlainTextResponse(too_large(stream, name), 413)
        hub.uploads[stream] = made = Upload(stream, name, size)
        try:
            await made.receive(request.stream(), hub.client.url, hub.token)
        except ValueError as error:
            return PlainTextResponse(str(error), 413)
        return Response(status_code=202)

    @ui.page("/")
    async def overview(request: Request) -> None:
        await show(request, OverviewView)

    @ui.page("/queries")
    async def queries(request: Request) -> None:
        await show(request, QueriesView)

    @ui.page("/queries/{name}")
    async def query(request: Request, name: str) -> None:
        await show(request, lambda hub: QueryView(hub, name))

    @ui.page("/compose")
    async def compose(request: Request) -> None:
        await show(request, ComposeView)

    @ui.page("/streams")
    async def streams(request: Request) -> None:
        await show(request, StreamsView)

    @ui.page("/scheduler")
    async def scheduler(request: Request) -> None:
        await show(request, SchedulerView)

    ui.run_with(
        app,
        title="MavStream",
        favicon=_ASSETS / "icon.svg",
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=5.0,
        message_history_length=100,
        # The guard gives nonces to the scripts of a page, so it must see plain text.
        gzip_middleware_factory=None,
        tailwind=False,
        show_welcome_message=False,
    )
    app.add_middleware(Guard, host=host, allow_host=allow_host, secure=secure)
    return app


def _nothing() -> None:
    pass
