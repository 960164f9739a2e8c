"""The layouts of a log's segments: each has the fields that the log had when the segment was begun."""

from __future__ import annotations

from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.format.layout import Layout


class Layouts:
    """The layouts of all segments of a log, one for segments with the same fields."""

    def __init__(self, description: LogDescription) -> None:
        self.description = description
        self._by_width: dict[int, Layout] = {}

    def of(self, serial: int) -> Layout:
        """Return the layout of a segment."""
        width = self.description.width_of(serial)
        layout = self._by_width.get(width)
        if layout is None:
            layout = self._by_width[width] = Layout(self.description, width)
        return layout

    def update(self, description: LogDescription) -> None:
        """Use a description with more fields; frames that do not have them read them as nulls."""
        if description == self.description:
            return
        self.description = description
        for layout in self._by_width.values():
            layout.add_absent(description)
