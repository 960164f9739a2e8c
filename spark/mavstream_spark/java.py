"""Check for a Java that Spark can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from mavstream_spark.errors import NoSpark

MIN_VERSION = 17
"""The oldest Java that Spark 4 runs on."""
_ADVICE = (
    f"install Java {MIN_VERSION} or newer (Debian, Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17), or point JAVA_HOME to it"
)


def check_java() -> int:
    """Return the version of the Java that Spark would use; raises NoSpark with what to install."""
    program = _program()
    try:
        result = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSpark(f"Spark needs Java, but '{program}' does not run ({error}): {_ADVICE}") from None
    version = _version(result.stderr + result.stdout)
    if version is None:
        output = (result.stderr + result.stdout).strip()[:100]
        raise NoSpark(f"Spark needs Java, but '{program} -version' says '{output}': {_ADVICE}")
    if version < MIN_VERSION:
        raise NoSpark(
            f"Spark needs Java {MIN_VERSION} or newer, but '{program}' is Java {version}: {_ADVICE}"
        )
    return version


def _program() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise NoSpark(f"Spark needs Java, but there is no 'java' on the PATH: {_ADVICE}")
    return found


def _version(text: str) -> int | None:
    """Read `version "17.0.15"`; until Java 8 it was `version "1.8.0_392"`."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])
