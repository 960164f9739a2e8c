"""Our packages on Spark's workers: other machines run the driver's code, not what they have installed."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_PACKAGES = ("mavstream_protocol", "mavstream", "mavstream_feeder", "mavstream_server", "mavstream_spark")
_ARCHIVE = "mavstream.zip"


def workers_are_here(master: str) -> bool:
    """Return whether tasks run in child processes of the driver, which import what it imports."""
    return master.startswith("local") and not master.startswith("local-cluster")


def ship_packages(context: SparkContext) -> None:
    """Send our packages to the workers, once; these must have numpy, pydantic and pyarrow."""
    if any(Path(path).name == _ARCHIVE for path in context.listFiles):
        return
    folder = tempfile.mkdtemp(prefix="mavstream-")
    # Workers fetch it when their first task starts, and new ones may join at any time.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder) / _ARCHIVE
    write_packages(archive)
    context.addPyFile(str(archive))


def write_packages(archive: Path) -> None:
    """Write the Python files of our packages to an archive that Python can import from."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for package in _PACKAGES:
            spec = find_spec(package)
            assert spec is not None
            assert spec.origin is not None
            folder = Path(spec.origin).parent
            for file in sorted(folder.rglob("*.py")):
                made.write(file, Path(package) / file.relative_to(folder))
