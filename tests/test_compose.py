"""The compose file is valid, and its commands, variables and health check work.

The tests need no container engine: the services run as plain processes, with the commands of the file.
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
from tests.support.commands.in_process import command
from tests.support.servers.running_server import PATIENCE, running_server

from mavstream.cli.tokens import app as token_app
from mavstream_feeder.commands import app as feeder_app
from mavstream_feeder.demo.homes import HOMES, SPEED
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
    return dict(SERVICES[service].get("environment", {}))


def placed(words: list[str], root: Path) -> list[str]:
    """Return words with the folders of the volumes below another root."""
    return [re.sub(r"^/(tokens|admin-token|feeder-token)/", rf"{root}/\1/", word) for word in words]


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
    apps = {
        "serve": server_app,
        "feed": feeder_app,
        "demo": feeder_app,
        "data": data_app,
        "token": token_app,
    }
    command = typer.main.get_command(apps[name])
    if name in ("data", "token"):
        name, *flags = flags
    command = getattr(command, "commands", {}).get(name, command)
    # Parses the words as the command line does, and fails on an unknown flag or value.
    with command.make_context(name, flags) as context:
        assert context.params


def test_every_environment_variable_is_a_known_setting() -> None:
    settings = {f"MAVSTREAM_{field.upper()}" for field in Settings.model_fields}
    for service in SERVICES:
        others = {"MAVSTREAM_URL", "MAVSTREAM_TOKEN_FILE"}
        assert set(variables_of(service)) <= (settings if service == "server" else others)


def test_the_server_is_published_on_loopback_only_and_requires_tokens(tmp_path: Path) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["server"]["ports"])
    made = tokens_made(tmp_path)
    settings = Settings.from_environment(made, host="0.0.0.0")
    assert sorted(each.role for each in settings.principals().values()) == ["admin", "feeder"]
    assert made["MAVSTREAM_ALLOW_HOST"] == "server", "the name by which the other services reach it"


def test_no_token_is_in_the_file_and_each_is_made_once(tmp_path: Path) -> None:
    tokens_made(tmp_path)
    secrets = {path: path.read_text() for path in tmp_path.glob("*-token/token")}
    assert len({*secrets.values()}) == 2
    tokens_made(tmp_path)
    assert all(path.read_text() == secret for path, secret in secrets.items())
    assert "MAVSTREAM_TOKENS:" not in FILE.read_text()


def test_a_service_sees_its_own_token_only() -> None:
    for service, mounted in (("feeder", "feeder-token"), ("client", "admin-token"), ("server", "tokens")):
        volumes = [each.partition(":")[0] for each in SERVICES[service]["volumes"]]
        assert [each for each in volumes if each.endswith(("-token", "tokens"))] == [mounted]
        assert f"{mounted}:/{mounted}:ro" in SERVICES[service]["volumes"]
        assert f" /{mounted}" in DOCKERFILE, "it belongs to the user of the image"


def tokens_made(root: Path) -> dict[str, str]:
    """Run the services that make tokens; returns the server's variables."""
    for service in ("admin-token", "feeder-token"):
        for folder in ("tokens", service):
            (root / folder).mkdir(exist_ok=True)
        assert SERVICES["server"]["depends_on"][service] == {"condition": "service_completed_successfully"}
        assert command(*placed(words_of(service), root)).returncode == 0
    server = variables_of("server")
    return dict(zip(server, placed(list(server.values()), root), strict=True))


def test_the_data_directory_is_in_the_volume() -> None:
    words = words_of("server")
    folder = words[words.index("--data") + 1]
    assert f"data:{folder}" in SERVICES["server"]["volumes"]
    named = {each.partition(":")[0] for service in SERVICES.values() for each in service.get("volumes", ())}
    assert set(COMPOSE["volumes"]) == named
    assert f"WORKDIR {folder}" in DOCKERFILE
    assert "\nVOLUME" not in DOCKERFILE, "services without a volume there would leave anonymous ones behind"


def test_the_data_job_writes_what_the_feeder_waits_for_and_reads() -> None:
    words, fed = words_of("data"), words_of("feeder")
    dataset = words[words.index("--out") + 1]
    folder = Path(dataset).parent
    assert fed[fed.index("--data") + 1] == dataset
    told = words_of("client")
    assert told[told.index("--data") + 1] == dataset, "its ground truth has the fires"
    assert fed[fed.index("--speed") + 1] == f"{SPEED:g}x"
    assert SERVICES["data"]["volumes"] == [f"feed:{folder}"]
    assert all(f"feed:{folder}:ro" in SERVICES[each]["volumes"] for each in ("feeder", "client"))
    assert SERVICES["data"]["profiles"] == ["data"], "it runs only when it is asked for"
    waits = {"condition": "service_completed_successfully", "required": False}
    assert SERVICES["feeder"]["depends_on"]["data"] == waits
    assert f"--owner mavstream /data {folder}" in DOCKERFILE
    assert re.search(rf"cp .*mavstream_feeder/data/homes {dataset} ", DOCKERFILE), (
        "there is one without the job"
    )


def test_spark_can_run_the_libraries_that_it_unpacks() -> None:
    assert SERVICES["data"]["tmpfs"] == ["/tmp:exec"]
    assert "SPARK_LOCAL_DIRS" not in variables_of("data"), "its temporary files go with the container"


def test_each_image_is_built_once_before_it_is_used() -> None:
    builders = {each["image"]: name for name, each in SERVICES.items() if "build" in each}
    assert len(builders) == sum("build" in each for each in SERVICES.values())
    for name, each in SERVICES.items():
        builder = builders[each["image"]]
        assert builder in {name, *waited_for(name)}, f"'{name}' may start before '{builder}' built its image"


def waited_for(service: str) -> set[str]:
    """Return the services that must have started before another one does."""
    first = set(SERVICES[service].get("depends_on", ()))
    return first.union(*(waited_for(each) for each in first))


def test_dependencies_are_installed_before_sources_are_copied() -> None:
    first, _, then = DOCKERFILE.partition("COPY README.md LICENSE")
    assert ".[${EXTRAS}]" in first
    assert re.findall(r"^COPY (.+)$", first, re.MULTILINE) == ["pyproject.toml ./"]
    assert "--no-deps" in then


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


def test_the_shipped_data_is_part_of_the_package() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = {each for found in tool["package-data"].values() for each in found}
    assert any(Path("data/doors.csv").match(each) for each in patterns), "add data/*.csv to package-data"
    assert any(Path("data/homes/manifest.json").match(each) for each in patterns)


def run(service: str, url: str, root: Path, **changed: str) -> subprocess.Popen[str]:
    """Start the command of a service, connected to another address, with volumes below `root`."""
    variables = variables_of(service)
    words = [url if word == "http://server:8000" else word for word in words_of(service)]
    for flag, value in changed.items():
        words[words.index(f"--{flag}") + 1] = value
    return subprocess.Popen(
        [sys.executable, "-m", "mavstream", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **dict(zip(variables, placed(list(variables.values()), root), strict=True))},
    )


def health(port: int) -> int:
    """Return the exit code of the server's health check on another port."""
    _, *check = SERVICES["server"]["healthcheck"]["test"]
    check = [word.replace("/8000", f"/{port}").replace("$$", "$") for word in check]
    return subprocess.run(check, check=False, stderr=subprocess.DEVNULL).returncode


def test_the_services_work_together(tmp_path: Path) -> None:
    _, *flags = words_of("server")
    # Later flags win, so those of the file are removed: the test passes its own directory and port first.
    for flag in ("--data", "--port"):
        del flags[flags.index(flag) : flags.index(flag) + 2]
    with running_server(tmp_path / "data", *flags, env=tokens_made(tmp_path)) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert health(int(url.rpartition(":")[2])) == 0
        assert health(1) != 0, "nothing listens there"
        feeder = run("feeder", url, tmp_path, data=str(HOMES))
        client = run("client", url, tmp_path, seconds="4", data=str(HOMES))
        summary, errors = client.communicate(timeout=120)
        feeder.terminate()
        table, trouble = feeder.communicate(timeout=PATIENCE)
    assert (client.returncode, errors) == (0, "")
    assert all(name in summary for name in ("alarms", "control", "comfort"))
    assert feeder.returncode == 0
    assert all(line.startswith("created stream ") for line in trouble.splitlines()), trouble
    assert "temperature" in table
