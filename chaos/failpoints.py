"""The failpoints that rounds arm, each with the change that leads there."""

from __future__ import annotations

from typing import NamedTuple

_WRITES = ("before=kill", "after=kill", "before=torn")


class Armed(NamedTuple):
    """A failpoint that acts at one of the first hits of its point."""

    entry: str
    """As in the variable of the server, without the number of the hit."""
    most: int
    """The last hit at which it may act."""
    change: str | None = None
    """The change that has to be made for the point to be reached; None if feeding reaches it."""


def failpoints(small_results: bool, sync: bool) -> list[Armed]:
    """Return the failpoints of a run: with small result logs those of new segments, with sync of syncs."""
    return [
        *(Armed(f"engine:log.write.{each}", 60) for each in _WRITES),
        *(Armed(f"api:log.write.{each}", 20) for each in _WRITES),
        Armed("engine:log.commit.after=kill", 60),
        Armed("api:log.commit.after=kill", 20),
        *(Armed(f"{process}:log.write=short", 20) for process in ("api", "engine")),
        *(Armed(f"engine:log.{each}=kill", 1, "start") for each in ("create.after", "rename.before")),
        Armed("engine:log.rename.after=kill", 1, "start"),
        *(Armed(f"api:catalog.commit.{end}=kill", 1, "class") for end in ("before", "after")),
        *(Armed(f"api:table.{each}=kill", 1, "table") for each in ("write.after", "rename.before")),
        *(Armed(f"api:table.{each}", 1, "table") for each in ("rename.after=kill", "write=enospc")),
        *(Armed(f"writer:checkpoint.write.{each}", 30) for each in _WRITES),
        *(Armed(f"writer:checkpoint.write={error}", 30) for error in ("enospc", "eio", "short")),
        *(Armed(f"writer:checkpoint.rename.{end}=kill", 15) for end in ("before", "after")),
        *(Armed(f"engine:checkpoint.write.{each}", 1, "pause") for each in _WRITES),
        *(Armed(f"engine:checkpoint.rename.{end}=kill", 1, "pause") for end in ("before", "after")),
        *(Armed(f"engine:log.seal.{end}=kill", 1) for end in ("before", "after") if small_results),
        *(_syncs() if sync else ()),
    ]


def _syncs() -> list[Armed]:
    return [
        *(Armed(f"api:log.fsync.{end}=kill", 20) for end in ("before", "after")),
        *(Armed(f"writer:checkpoint.fsync.{end}=kill", 15) for end in ("before", "after")),
        Armed("writer:checkpoint.fsync=eio", 15),
    ]
