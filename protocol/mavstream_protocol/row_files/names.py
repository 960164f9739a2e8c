"""Names of columns, made of headers: `Temperature (C)` is `Temperature_C`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mavstream_protocol.names import read_name
from mavstream_protocol.streams import RESERVED_NAMES

_LONGEST = 64


def column_names(headers: Sequence[str], rename: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return a name for each header, all different. Raises ValueError for a renaming that cannot be done."""
    renamed = dict(rename or {})
    names: list[str] = []
    for place, header in enumerate(headers, 1):
        made = _made(header, place)
        chosen = renamed.pop(header, None) or renamed.pop(header.strip(), None) or renamed.pop(made, None)
        if chosen is not None:
            read_name(chosen)
            if chosen in names:
                raise ValueError(f"two columns would be named '{chosen}': rename one of them otherwise")
        names.append(chosen or _unused(made, names))
    if renamed:
        raise ValueError(
            f"there is no column '{next(iter(renamed))}' to rename: there are {', '.join(map(repr, headers))}"
        )
    return tuple(names)


def _made(header: str, place: int) -> str:
    name = re.sub(r"[^A-Za-z0-9_]+", "_", header.strip())
    if name != header.strip():
        name = name.strip("_")
    if name[:1].isdigit():
        name = f"_{name}"
    return (f"{name}_" if name in RESERVED_NAMES else name)[:_LONGEST] or f"column_{place}"


def _unused(name: str, taken: Sequence[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name[: _LONGEST - 4]}_{number}"
    return found
