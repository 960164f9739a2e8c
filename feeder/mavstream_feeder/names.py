"""What is fed: which file for which stream at which rate, from the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mavstream_feeder.problems import UnreadableFile
from mavstream_feeder.rates import Rate, parse_rates
from mavstream_feeder.sample import STREAMS, sample_file
from mavstream_protocol import NAME_PATTERN, StreamSpec

_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)")


@dataclass(frozen=True, slots=True)
class FeedFile:
    """A file for a stream."""

    stream: str
    path: Path
    rate: Rate
    spec: StreamSpec | None = None
    """How the stream is made if it is missing; None to find out from the file."""


def read_feeds(files: Sequence[str], rates: Sequence[str], *, sample: bool = False) -> list[FeedFile]:
    """Return what to feed; `FILE` is for the stream of its name. Raises UnreadableFile, InvalidRate."""
    paths: dict[str, Path] = {name: sample_file(name) for name in STREAMS} if sample else {}
    for text in files:
        named = _NAMED.fullmatch(text)
        name, path = (named[1], Path(named[2])) if named else (Path(text).stem, Path(text))
        if not re.fullmatch(NAME_PATTERN.strip("^$"), name):
            raise UnreadableFile(f"file '{path}' does not say its stream by its name: write STREAM={path}")
        if name in paths:
            raise UnreadableFile(f"stream '{name}' has two files, '{paths[name]}' and '{path}': give one")
        paths[name] = path
    if not paths:
        raise UnreadableFile("there is nothing to feed: give STREAM=FILE, or --sample")
    found = parse_rates(rates, paths)
    return [
        FeedFile(name, path, found[name], STREAMS.get(name) if path == sample_file(name) else None)
        for name, path in paths.items()
    ]
