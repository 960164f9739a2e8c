"""Logging to stderr: one JSON object per event for machines, or one readable line for people."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

LogFormat = Literal["json", "text"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_TOKEN = re.compile(r"(token=|[Bb]earer\s+)[^\s&\"']+")


def configure_logging(style: LogFormat = "json", level: str = "info") -> None:
    """Send all logs of this process to stderr; those of uvicorn from level warning."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    handler.addFilter(_hide_tokens)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("mavstream").setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        # Its messages about accepted websockets quote the URL, which may contain a token.
        logger.setLevel(logging.WARNING)
        logger.handlers, logger.propagate = [], True
    # Answered with a problem; a line for each would let anybody fill the log.
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: record.msg != "Invalid HTTP request received."
    )


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that were passed as `extra`."""
    given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**given, **given.pop("fields", {})}


def _hide_tokens(record: logging.LogRecord) -> bool:
    record.msg, record.args = _TOKEN.sub(r"\1***", record.getMessage()), ()
    return True


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            event["error"] = self.formatException(record.exc_info)
        return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        line = f"{_time(record)} {record.levelname:7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
