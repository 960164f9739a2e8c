"""Command-line arguments that say which files are fed into which streams, and at which rate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mavstream_feeder.errors import InvalidSplit, UnreadableFile
from mavstream_feeder.input.feed_files import FeedFile, read_dataset
from mavstream_feeder.input.sample import STREAMS, sample_file
from mavstream_feeder.input.splitting import parse_split
from mavstream_feeder.pacing.rates import FLAT_OUT, AnyRate, Recorded, parse_rates
from mavstream_protocol import NAME_PATTERN

_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)")


@dataclass(frozen=True, slots=True)
class InputArguments:
    """What the command line gives to be fed."""

    files: Sequence[str] = ()
    """`FILE` for the stream of its name, or `STREAM=FILE`."""
    splits: Sequence[str] = ()
    """`STREAM=FILE where CONDITION`."""
    sample: bool = False
    data: Path | None = None
    """The folder of a dataset."""
    streams: Sequence[str] = ()
    """Streams of the dataset; empty for all."""


def read_feeds(given: InputArguments, rates: Sequence[str] = (), speed: float = 1.0) -> list[FeedFile]:
    """Return what to feed, with rates. Raises UnreadableFile, InvalidSplit, InvalidRate, InvalidDataset.

    Without a rate, the streams of a dataset are fed as recorded and others as fast as acknowledgements allow.
    """
    feeds: dict[str, FeedFile] = {}
    if given.data is not None:
        feeds = read_dataset(given.data, given.streams)
    elif given.streams:
        raise UnreadableFile("--stream chooses from a dataset: give its folder with --data")
    own_time = set(feeds)
    if given.sample:
        feeds |= {name: FeedFile(name, (sample_file(name),), spec) for name, spec in STREAMS.items()}
    for text in given.files:
        _add(feeds, _file(text))
    _split(feeds, given.splits)
    if not feeds:
        raise UnreadableFile("there is nothing to feed: give STREAM=FILE, --data, --split or --sample")
    defaults: dict[str, AnyRate] = {name: Recorded() for name in own_time}
    if not rates:
        defaults |= {name: FLAT_OUT for name in feeds if name not in own_time}
    found = parse_rates(_of_feeds(rates, feeds), feeds, defaults)
    return [replace(feed, rate=found[name].faster(speed)) for name, feed in feeds.items()]


def parse_skips(texts: Iterable[str], names: Sequence[str]) -> Mapping[str, int]:
    """Parse how many rows of each file to skip: `120` for all, `readings=120` for one."""
    skips: dict[str, int] = {}
    for text in texts:
        written = re.fullmatch(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)\s*=)?\s*([0-9]+)\s*", text)
        if written is None:
            raise ValueError(f"expected a number of rows to skip, such as 120 or readings=120, got '{text}'")
        name, rows = written[1], int(written[2])
        if name is not None and name not in names:
            raise ValueError(f"skip '{text}' is for '{name}', which is not fed: fed are {', '.join(names)}")
        skips |= dict.fromkeys([name] if name is not None else names, rows)
    return skips


def _file(text: str) -> FeedFile:
    named = _NAMED.fullmatch(text)
    name, path = (named[1], Path(named[2])) if named else (Path(text).stem, Path(text))
    if not re.fullmatch(NAME_PATTERN.strip("^$"), name):
        raise UnreadableFile(f"file '{path}' has a name that no stream can have: write STREAM={path}")
    return FeedFile(name, (path,))


def _add(feeds: dict[str, FeedFile], feed: FeedFile) -> None:
    if feed.name in feeds:
        first, second = feeds[feed.name].paths[0], feed.paths[0]
        raise UnreadableFile(f"stream '{feed.name}' has two files, '{first}' and '{second}': give one")
    feeds[feed.name] = feed


def _split(feeds: dict[str, FeedFile], splits: Sequence[str]) -> None:
    """Add the branches of splits to their files; streams of a dataset or the sample can be split, too."""
    split: dict[str, FeedFile] = {}
    for text in splits:
        file, branch = parse_split(text)
        feed = split.get(file)
        if feed is None:
            # A stream that is split is not fed itself.
            feed = feeds.pop(file, None) or FeedFile(Path(file).stem, (Path(file),))
        split[file] = replace(feed, branches=(*feed.branches, branch))
    for feed in split.values():
        if feed.name in feeds:
            raise InvalidSplit(
                f"file '{feed.paths[0]}' is split under the name '{feed.name}', which another file has: "
                "rename one of them"
            )
        feeds[feed.name] = feed
    taken: dict[str, str] = {}
    for feed in feeds.values():
        for stream in feed.streams:
            if stream in taken:
                raise InvalidSplit(
                    f"stream '{stream}' gets rows of '{taken[stream]}' and '{feed.name}': give one"
                )
            taken[stream] = feed.name


def _of_feeds(rates: Sequence[str], feeds: Mapping[str, FeedFile]) -> Sequence[str]:
    """Check that no rate is for a stream of a split file, which has one rate; return the rates."""
    for text in rates:
        stream = text.partition("=")[0].strip()
        for feed in feeds.values():
            if feed.branches and stream != feed.name and stream in feed.streams:
                raise InvalidSplit(
                    f"rate '{text}' is for one stream of a file that is split: its rows arrive at one rate, "
                    f"give --rate {feed.name}=..."
                )
    return rates
