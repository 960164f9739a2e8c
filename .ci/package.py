"""Build wheel and sdist, install the wheel into a clean environment, and try it: `make package`.

The wheel is built from the sdist, so that both are complete. pip takes dependencies from the
index that it is configured for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "build" / "package"
SOURCES = ("protocol", "client", "server", "feeder", "page", "spark", "experiments")
TRIAL = """
import importlib, sys
from pathlib import Path
for name in sys.argv[1:]:
    found = Path(importlib.import_module(name).__file__)
    assert found.is_relative_to(sys.prefix), f"{name} is imported from {found}, not from the wheel"
    assert (found.parent / "py.typed").exists(), f"{name} has no py.typed"
"""


def run(*words: str | Path) -> str:
    """Run a command apart from the sources and return its output; errors end the script."""
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=PLACE, env=others, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def source_files() -> set[str]:
    """Return the files of all packages, as they are named in a wheel."""
    folders = [ROOT / folder for folder in SOURCES]
    return {
        path.relative_to(folder).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def main() -> None:
    """Build, install and try."""
    shutil.rmtree(PLACE, ignore_errors=True)
    builder, clean, dist = PLACE / "builder", PLACE / "clean", PLACE / "dist"
    venv.create(builder, with_pip=True)
    python = builder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", "build")
    run(python, "-m", "build", "--outdir", dist, ROOT)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")

    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if packed != source_files():
        sys.exit(f"the wheel and the sources differ in {', '.join(sorted(packed ^ source_files()))}")

    venv.create(clean)
    target = clean / "bin" / "python"
    run(python, "-m", "pip", "--python", target, "install", "--quiet", "--no-compile", wheel)
    version = run(clean / "bin" / "mavstream", "--version").strip()
    packages = sorted({name.partition("/")[0] for name in packed})
    run(target, "-I", "-c", TRIAL, *packages)
    print(
        f"mavstream {version}: {wheel.name} and {sdist.name} in {dist}; {', '.join(packages)} are importable"
    )


main()
