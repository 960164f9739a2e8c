"""Dependencies point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVER = ROOT / "server" / "mavstream_server"

# What a part may import of ours, besides itself.
ALLOWED = {
    ROOT / "protocol" / "mavstream_protocol": [],
    ROOT / "client" / "mavstream": ["mavstream_protocol"],
    # Conditions of a split are worked out as the engine does.
    ROOT / "feeder" / "mavstream_feeder": [
        "mavstream_protocol",
        "mavstream",
        "mavstream_server.columns",
        "mavstream_server.expressions",
    ],
    SERVER / "columns": ["mavstream_protocol"],
    SERVER / "expressions": ["mavstream_protocol", "mavstream_server.columns"],
    SERVER / "log": ["mavstream_protocol", "mavstream_server.columns"],
    SERVER / "tables": ["mavstream_protocol", "mavstream_server.columns"],
    SERVER / "scheduling": ["mavstream_protocol"],
    SERVER / "simulation": ["mavstream_protocol", "mavstream_server.scheduling"],
    SERVER / "experiments": [
        "mavstream_protocol",
        "mavstream_server.scheduling",
        "mavstream_server.simulation",
    ],
    SERVER / "optimizer": [
        "mavstream_protocol",
        "mavstream_server.engine.figures",
        "mavstream_server.scheduling",
    ],
    SERVER / "operators": [
        "mavstream_protocol",
        "mavstream_server.columns",
        "mavstream_server.expressions",
        "mavstream_server.log",
        "mavstream_server.tables",
    ],
    SERVER / "weighting.py": ["mavstream_protocol", "mavstream_server.operators"],
    SERVER / "instantiator.py": [
        "mavstream_protocol",
        "mavstream_server.log",
        "mavstream_server.operators",
        "mavstream_server.tables",
    ],
    SERVER / "engine": [
        "mavstream_protocol",
        "mavstream_server.columns",
        "mavstream_server.instantiator",
        "mavstream_server.log",
        "mavstream_server.operators",
        "mavstream_server.scheduling",
        "mavstream_server.tables",
        "mavstream_server.weighting",
    ],
    SERVER / "service": [
        "mavstream_protocol",
        "mavstream_server.columns",
        "mavstream_server.engine",
        "mavstream_server.instantiator",
        "mavstream_server.log",
        "mavstream_server.optimizer",
        "mavstream_server.scheduling",
        "mavstream_server.tables",
    ],
    SERVER / "api": [
        "mavstream_protocol",
        "mavstream_server.columns",
        "mavstream_server.engine",
        "mavstream_server.log",
        "mavstream_server.optimizer.fairness",
        "mavstream_server.scheduling",
        "mavstream_server.service",
    ],
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("part", ALLOWED, ids=lambda part: part.name)
def test_a_part_imports_only_what_stands_below_it(part: Path) -> None:
    own = ".".join(
        part.relative_to(SERVER.parent if SERVER in part.parents else part.parent).with_suffix("").parts
    )
    for path in [part] if part.suffix else part.rglob("*.py"):
        for name in imported(path):
            if name.startswith("mavstream"):
                known = any(f"{name}.".startswith(f"{below}.") for below in (own, *ALLOWED[part]))
                assert known, f"{path.relative_to(ROOT)} imports {name}"


def test_only_the_protocol_parses_sql() -> None:
    for path in SERVER.rglob("*.py"):
        assert not any(name.startswith("sqlglot") for name in imported(path)), path


def test_every_module_says_what_it_is_for() -> None:
    for folder in ("protocol", "client", "server", "feeder"):
        for path in (ROOT / folder).rglob("*.py"):
            doc = ast.get_docstring(ast.parse(path.read_text())) or ""
            assert len(doc) > 10, f"{path.relative_to(ROOT)} has no docstring"
