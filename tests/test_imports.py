"""Dependencies point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVER = ROOT / "server" / "mavstream_server"
SPARK = ROOT / "spark" / "mavstream_spark"

# The parts of the server that each part may import besides itself; all of them may import the protocol.
SERVER_PARTS = {
    "core": [],
    "columns": [],
    "expressions": ["columns"],
    "log": ["columns", "core"],
    "tables": ["columns", "core", "log"],
    "operators": ["columns", "core", "expressions", "log", "tables"],
    "scheduling": ["core"],
    "planning": ["log", "operators", "scheduling", "tables"],
    "engine": ["columns", "core", "log", "operators", "planning", "scheduling", "tables"],
    "catalog": ["core"],
    "ingest": ["catalog", "columns", "core", "log"],
    "results": ["columns", "core", "log"],
    "supervisor": ["catalog", "core", "engine", "log", "scheduling"],
    "optimizer": ["core", "engine.process.messages", "planning", "scheduling", "supervisor"],
    "queries": [
        "catalog",
        "core",
        "engine",
        "ingest",
        "log",
        "optimizer",
        "planning",
        "results",
        "scheduling",
        "supervisor",
        "tables",
    ],
    "api": [
        "catalog",
        "columns",
        "core",
        "engine",
        "ingest",
        "optimizer",
        "queries",
        "results",
        "scheduling",
        "supervisor",
        "tables",
    ],
    "checking": ["catalog", "core", "log", "tables"],
    "simulation": ["scheduling"],
}

# The packages and modules of this repository that each part may import besides itself.
ALLOWED = {
    ROOT / "protocol" / "mavstream_protocol": [],
    ROOT / "client" / "mavstream": ["mavstream_protocol"],
    # Conditions of a split are evaluated as in the engine.
    ROOT / "feeder" / "mavstream_feeder": [
        "mavstream_protocol",
        "mavstream",
        "mavstream_server.columns",
        "mavstream_server.expressions",
    ],
    ROOT / "page" / "mavstream_page": ["mavstream_protocol", "mavstream"],
    ROOT / "experiments" / "mavstream_experiments": [
        "mavstream_protocol",
        "mavstream_server.scheduling",
        "mavstream_server.simulation",
    ],
    SPARK: ["mavstream_protocol", "mavstream", "mavstream_feeder"],
    SPARK / "homes": ["mavstream_protocol"],
    SPARK / "plans": ["mavstream_protocol", "mavstream_spark.errors"],
    SPARK / "datasets": [
        "mavstream_protocol",
        "mavstream_spark.errors",
        "mavstream_spark.plans",
        "mavstream_spark.session",
    ],
} | {
    SERVER / part: ["mavstream_protocol", *(f"mavstream_server.{below}" for below in belows)]
    for part, belows in SERVER_PARTS.items()
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
def test_a_part_imports_only_the_parts_below_it(part: Path) -> None:
    # Packages lie two folders below the root: server/mavstream_server.
    own = ".".join(part.relative_to(ROOT).with_suffix("").parts[1:])
    for path in [part] if part.suffix else part.rglob("*.py"):
        for name in imported(path):
            if name.startswith("mavstream"):
                known = any(f"{name}.".startswith(f"{below}.") for below in (own, *ALLOWED[part]))
                assert known, f"{path.relative_to(ROOT)} imports {name}"


def test_every_part_of_the_server_is_in_the_table() -> None:
    folders = {path.name for path in SERVER.iterdir() if (path / "__init__.py").exists()}
    assert folders - {"testing"} == set(SERVER_PARTS)


def test_only_jobs_on_spark_write_sql() -> None:
    for folder in ("protocol", "client", "server", "feeder", "page", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not any(name.startswith("sqlglot") for name in imported(path)), path


def test_the_api_process_loads_no_operators() -> None:
    probe = "import sys, mavstream_server.api.serve; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout
    for part in ("operators", "expressions", "engine.engine", "planning.instantiator"):
        assert f"mavstream_server.{part}" not in loaded.split(), part


def test_every_module_has_a_docstring() -> None:
    for folder in ("protocol", "client", "server", "feeder", "page", "spark", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            doc = ast.get_docstring(ast.parse(path.read_text())) or ""
            assert len(doc) > 10, f"{path.relative_to(ROOT)} has no docstring"
