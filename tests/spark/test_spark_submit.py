"""Jobs under spark-submit, whose workers run in other processes and get our code from the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands.as_process import command

from mavstream_protocol.manifest import Manifest
from mavstream_spark.shipping import workers_are_here, write_packages

pytestmark = pytest.mark.xdist_group("spark")

# What the tasks of each kind of job import.
IMPORTS = "homes.batches", "generate.plain", "plans.text_casts"


def test_workers_can_import_the_code_that_they_are_sent(tmp_path: Path) -> None:
    archive = tmp_path / "mavstream.zip"
    write_packages(archive)
    lines = [f"import sys; sys.path.insert(0, {str(archive)!r})"]
    lines += [f"import mavstream_spark.{name}" for name in IMPORTS]
    lines += ["print(*{m.__file__ for n, m in sys.modules.items() if n.partition('_')[0] == 'mavstream'})"]
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    files = result.stdout.split()
    assert len(files) > 20
    assert [file for file in files if not file.startswith(str(archive))] == []


def test_only_local_workers_can_import_our_code_without_an_archive() -> None:
    masters = ("local", "local[2]", "local-cluster[1,1,1024]", "spark://host:7077", "yarn", "k8s://host")
    assert [workers_are_here(master) for master in masters] == [True, True, False, False, False, False]


def spark_home(folder: Path) -> Path:
    """Return PySpark's own Spark in a folder that executors can work in."""
    import pyspark

    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


@pytest.mark.long
def test_spark_submit_runs_a_job_on_an_executor_of_its_own(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark")
    script = command("data", "script").stdout.strip()
    words = ["generate", "--workload", "plain", "--streams", "1", "--rate", "50@2s", "--out", "out"]
    done = subprocess.run(
        [home / "bin" / "spark-submit", "--master", "local-cluster[1,1,1024]", script, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    made = Manifest.load(tmp_path / "out")
    assert made.streams["readings1"].rows > 50
    # The executor has a working directory of its own, with the archive that it was sent.
    assert [file.name for file in home.glob("work/*/0/*.zip")] == ["mavstream.zip"]
