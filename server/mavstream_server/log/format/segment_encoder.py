"""The encoder of the segment being written: its layout, and the texts that its frames have so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mavstream_server.columns.column import Column
from mavstream_server.log.errors import UnfitRowsError
from mavstream_server.log.format.coding import SegmentCoder
from mavstream_server.log.format.encoding import NewFrame, encode_body, encode_plain
from mavstream_server.log.format.layout import Body
from mavstream_server.log.format.layouts import Layouts
from mavstream_server.log.options import LogOptions


class SegmentEncoder:
    """Encodes frames with the fields of one segment; `begin` starts the next one."""

    def __init__(self, path: Path, layouts: Layouts, serial: int) -> None:
        self._path = path
        self._layouts = layouts
        self.layout = layouts.of(serial)
        self.coder = SegmentCoder(self.layout)

    def begin(self, serial: int) -> None:
        """Encode for a new segment from here on."""
        layout = self._layouts.of(serial)
        if layout is self.layout:
            self.coder.restart()
        else:
            self.layout, self.coder = layout, SegmentCoder(layout)

    @property
    def outdated(self) -> bool:
        """Whether the log has got other fields since the segment was begun."""
        return self.layout is not self._layouts.newest

    def full_of_texts(self, options: LogOptions) -> bool:
        """Return whether the segment has as many texts as it should."""
        coder = self.coder
        return coder.texts > options.segment_texts or coder.text_size > options.segment_text_bytes

    def plain(self, columns: Mapping[str, Column], size: int, room: int) -> Body | None:
        """Encode rows without nulls that take at most `room` bytes; None if they have to be checked."""
        coder = self.coder
        known, body = coder.checkpoint(), None
        try:
            body = encode_plain(self.layout, columns, size, coder)
            if body is not None and body.length > room:
                body = None
        except IndexError:
            pass  # codes beyond the dictionary
        finally:
            if body is None:
                coder.undo(known)
        return body

    def bodies(self, frames: Sequence[NewFrame]) -> list[Body]:
        """Encode checked frames; raises UnfitRowsError."""
        known = self.coder.checkpoint()
        try:
            return [encode_body(self.layout, frame, self.coder) for frame in frames]
        except BaseException as error:
            # None of these frames will be written: the next frame must include their texts.
            self.coder.undo(known)
            if isinstance(error, IndexError):
                raise UnfitRowsError(
                    self._path, "a string column has codes beyond its dictionary; add the texts to it first"
                ) from error
            raise
