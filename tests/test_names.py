"""One name per concept: no two public classes of the server have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SERVER = Path(__file__).parent.parent / "server" / "mavstream_server"


def test_no_public_class_name_occurs_twice_in_the_server() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in SERVER.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SERVER)))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert not twice, f"rename one of each: {twice}"
