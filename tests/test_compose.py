"""The compose file is valid, and its commands, variables and health check work.

There is no container engine here, so the services run as plain processes, with the commands of the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.support.servers.running_server import PATIENCE, running_server

from mavstream_feeder.commands import app as feeder_app
from mavstream_server.commands import app as server_app
from mavstream_server.core.settings import Settings
from mavstream_spark.commands import app as data_app

ROOT = Path(__file__).parent.parent
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def words_of(service: str) -> list[str]:
    return list(SERVICES[service]["command"])


def variables_of(service: str) -> dict[str, str]:
    """Return a service's environment variables, with the defaults of the file."""
    given = SERVICES[service]["environment"]
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in given.items()}


def test_the_compose_file_matches_the_schema() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", FILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_commands_and_flags_exist(service: str) -> None:
    name, *flags = words_of(service)
    apps = {"serve": server_app, "feed": feeder_app, "demo": feeder_app, "data": data_app}
    command = typer.main.get_command(apps[name])
    if name == "data":
        name, *flags = flags
    command = getattr(command, "commands", {}).get(name, command)
    # Parses the words as the command line does, and fails on an unknown flag or value.
    with command.make_context(name, flags) as context:
        assert context.params


def test_every_environment_variable_is_a_known_setting() -> None:
    settings = {f"MAVSTREAM_{field.upper()}" for field in Settings.model_fields}
    for service in SERVICES:
        known = settings if service == "server" else {"MAVSTREAM_URL", "MAVSTREAM_TOKEN", "SPARK_LOCAL_DIRS"}
        assert set(SERVICES[service]["environment"]) <= known


def test_the_server_is_published_on_loopback_only_and_requires_tokens() -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["server"]["ports"])
    settings = Settings.from_environment(variables_of("server"), host="0.0.0.0")
    assert sorted(settings.token_roles().values()) == ["admin", "feeder"]


def test_the_data_directory_is_in_the_volume() -> None:
    words = words_of("server")
    folder = words[words.index("--data") + 1]
    assert SERVICES["server"]["volumes"] == [f"data:{folder}"]
    assert COMPOSE["volumes"] == {"data": {}, "feed": {}}
    assert f"VOLUME {folder}" in DOCKERFILE


def test_the_data_job_writes_where_the_feeder_reads() -> None:
    words = words_of("data")
    folder = Path(words[words.index("--out") + 1]).parent
    assert SERVICES["data"]["volumes"] == [f"feed:{folder}"]
    assert SERVICES["feeder"]["volumes"] == [f"feed:{folder}:ro"]
    assert SERVICES["data"]["profiles"] == ["data"], "it runs only when it is asked for"
    assert f"--owner mavstream /data {folder}" in DOCKERFILE


def test_the_image_copies_files_and_extras_that_exist() -> None:
    for source in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / part).exists() for part in source.split())
        assert all(f"!{part}" in (ROOT / ".dockerignore").read_text().split() for part in source.split())
    given = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.MULTILINE)
    given.append(SERVICES["data"]["build"]["args"]["EXTRAS"])
    for extras in given:
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert 'ENTRYPOINT ["mavstream"]' in DOCKERFILE
    assert "mavstream" in PROJECT["scripts"]
    assert re.findall(r"^USER (\w+)$", DOCKERFILE, re.MULTILINE)[-1] != "root"
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"python:3.11-slim"}


def test_the_sample_data_is_part_of_the_package() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = {each for found in tool["package-data"].values() for each in found}
    assert any(Path("data/doors.csv").match(each) for each in patterns), "add data/*.csv to package-data"


def run(service: str, url: str, **changed: str) -> subprocess.Popen[str]:
    """Start the command of a service, connected to another address."""
    words = [url if word == "http://server:8000" else word for word in words_of(service)]
    for flag, value in changed.items():
        words[words.index(f"--{flag}") + 1] = value
    return subprocess.Popen(
        [sys.executable, "-m", "mavstream", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables_of(service)},
    )


def test_the_services_work_together(tmp_path: Path) -> None:
    _, *flags = words_of("server")
    # Later flags win, so those of the file are removed: the test passes its own directory and port first.
    for flag in ("--data", "--port"):
        del flags[flags.index(flag) : flags.index(flag) + 2]
    with running_server(tmp_path, *flags, env=variables_of("server")) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        _, *check = SERVICES["server"]["healthcheck"]["test"]
        check = [sys.executable, *(word.replace("http://127.0.0.1:8000", url) for word in check[1:])]
        assert subprocess.run(check, check=False).returncode == 0
        feeder = run("feeder", url)
        client = run("client", url, seconds="4")
        summary, errors = client.communicate(timeout=120)
        feeder.terminate()
        table, trouble = feeder.communicate(timeout=PATIENCE)
    assert (client.returncode, errors) == (0, "")
    assert all(name in summary for name in ("alarms", "control", "comfort"))
    assert (feeder.returncode, trouble) == (0, "")
    assert "temperature" in table
