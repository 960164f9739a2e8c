"""Result logs of an engine: opened when a query starts, closed when it ends, trimmed by retention."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mavstream_protocol.schema import Schema
from mavstream_server.core.storage.damage import DamageListener, log_damage
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.engine.sinks import ResultLogSink
from mavstream_server.log.errors import LogMissingError
from mavstream_server.log.format.description import LogDescription, load_description
from mavstream_server.log.options import result_log_options
from mavstream_server.log.result_reader import ResultReader
from mavstream_server.log.retention import Retention
from mavstream_server.log.writer import LogWriter

_log = logging.getLogger(__name__)

_TRIM_EVERY = 1_000_000_000  # ns between two trims of the logs that have grown
_CACHE_BYTES = 4 << 20
"""Cache of decoded frames of each log that queries read."""
_SWEEP_EVERY = 60_000_000_000  # ns between two trims of all logs: rows expire without appends, too


def _ignore(id_: str) -> None:
    """Do nothing: the default callback."""


class ResultLogs:
    """The open result logs of an engine, by query id."""

    def __init__(
        self, folder: Path, max_bytes: int, max_age_ns: int, on_damage: DamageListener = log_damage
    ) -> None:
        self._folder = folder
        self._on_damage = on_damage
        self._options = result_log_options(max_bytes)
        self._retention = Retention(max_age_ns=max_age_ns, max_bytes=max_bytes)
        self._writers: dict[str, LogWriter] = {}
        self._due: set[str] = set()
        """Logs that have grown since they were trimmed, or that checkpoints hold beyond their limits."""
        self._trimmed = self._swept = 0
        self.written = False
        """Set by every append; reset by the host when it has notified the readers."""
        self.appended: Callable[[str], None] = _ignore
        """Called with the id of a query whose log has grown."""

    @property
    def settled(self) -> bool:
        """Whether no log is due to be trimmed."""
        return not self._due

    def open(self, command: StartQuery) -> ResultLogSink:
        """Open or create the result log of a query; no other writer may have it open."""
        id_, schema = command.id, command.plan.schema
        writer = self._writers[id_] = self._opened(self._folder / id_, schema)
        for damage in writer.damage:
            self._on_damage(damage)

        def appended() -> None:
            self.written = True
            self._due.add(id_)
            self.appended(id_)

        return ResultLogSink(writer, schema.names, command.epoch, command.revision, appended)

    def _opened(self, path: Path, schema: Schema) -> LogWriter:
        """Open or create a log for rows of a schema, which those that it has need not have."""
        try:
            described = load_description(path)
        except LogMissingError:
            described = LogDescription(schema)
        writer = LogWriter(path, described, self._options)
        try:
            writer.change_schema(schema)
        except BaseException:
            writer.close()
            raise
        return writer

    def reader(self, id_: str) -> ResultReader:
        """Return a reader of a log, which must be there; one that is not being written is repaired first."""
        if id_ not in self._writers:
            LogWriter(self._folder / id_, options=self._options).close()
        return ResultReader(self._folder / id_, _CACHE_BYTES, self._on_damage)

    def close(self, id_: str) -> None:
        """Close the log of a query, if it is open."""
        writer = self._writers.pop(id_, None)
        self._due.discard(id_)
        if writer is not None:
            try:
                writer.close()
            except OSError:
                _log.exception("result log could not be closed", extra={"fields": {"query": id_}})

    def close_all(self) -> None:
        """Close all logs."""
        for id_ in tuple(self._writers):
            self.close(id_)

    def trim(self, now_ns: int, held: Callable[[str], int | None] = lambda _: None) -> None:
        """Apply retention to the logs that are due; cheap to call often.

        `held` returns the offset from which checkpoints, or queries that read it, need a log, or None.
        """
        if now_ns - self._swept >= _SWEEP_EVERY:
            self._swept = now_ns
            self._due.update(self._writers)
        if not self._due or now_ns - self._trimmed < _TRIM_EVERY:
            return
        self._trimmed = now_ns
        grown, self._due = self._due & self._writers.keys(), set()
        for id_ in grown:
            writer = self._writers[id_]
            damage = writer.restore_header()
            if damage is not None:
                self._on_damage(damage)
            try:
                # Subscribers are not waited for: those that are behind get a gap.
                if self._retention.apply(writer, held(id_), now_ns).held:
                    self._due.add(id_)  # due again: checkpoints move on without another append
            except OSError:
                _log.exception("result log could not be trimmed", extra={"fields": {"query": id_}})
