"""Servers for tests and examples: a process on a free port that ends with the block."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mavstream._errors import CannotStart
from mavstream._server_process import ServerProcess

__all__ = ["start_server"]

_REQUIRED = ("mavstream_server", "fastapi", "uvicorn", "httptools", "prometheus_client")


@contextmanager
def start_server(
    data: str | os.PathLike[str] | None = None, *, timeout: float = 30.0, **settings: Any
) -> Iterator[str]:
    """Run a server and yield its address once it takes work; raises CannotStart.

    Without `data` its data directory is removed at the end. `settings` are those of `mavstream serve`:
    `policy="wrr"`, `max_queries=10`, `tokens="admin:secret"`.
    """
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        raise CannotStart(
            f"a server needs {', '.join(missing)}, which is not installed: pip install 'mavstream[server]'"
        )
    with ExitStack() as stack:
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="mavstream-"))
        env = {f"MAVSTREAM_{name.upper()}": _text(value) for name, value in settings.items()}
        server = ServerProcess(Path(data), env=env)
        stack.callback(server.close)
        yield server.wait_ready(timeout).url


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict) else str(value)
