"""HTTPS: the server's certificate is checked at the start and replaced on SIGHUP."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from tests.support.servers.running_server import PATIENCE, RunningServer, eventually, running_server
from tests.support.servers.sensors import SENSORS

from mavstream import Client
from mavstream_server.api.access.tls import CannotServe, Certificate


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a self-signed certificate for loopback."""
    chain, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(chain))
    subprocess.run(["openssl", *words.split(), *names, *files], check=True, capture_output=True)
    return chain, key


def presented(server: RunningServer) -> str:
    host, _, port = server.url.removeprefix("https://").partition(":")
    return ssl.get_server_certificate((host, int(port)))


def test_the_sdk_speaks_https_and_a_new_certificate_is_used_after_sighup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = certificate(tmp_path, "first")
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    with running_server(tmp_path / "data", "--tls-cert", str(chain), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://")
        with Client(server.url) as client:
            client.create_stream(SENSORS)
            with client.feed("p") as feed:
                feed.send("sensors", [{"n": 1, "x": 1}])
                feed.flush()
            assert client.stream_info("sensors").position == 1
        first = presented(server)
        assert first.split() == chain.read_text().split()
        for new, old in zip(certificate(tmp_path, "second"), (chain, key), strict=True):
            new.replace(old)
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: presented(server) != first, "the new certificate")
        chain.write_text("nothing")
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: any("certificate not reloaded" in line for line in server.log), "the refusal")
        assert presented(server) != first


def test_a_handshake_that_does_not_go_on_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, key = certificate(tmp_path, "one")
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    flags = ("--tls-cert", str(chain), "--tls-key", str(key), "--header-timeout", "1s")
    with running_server(tmp_path / "data", *flags) as server:
        host, _, port = server.url.removeprefix("https://").partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as half_open:
            assert half_open.recv(1) == b"", "the server closes the connection"
        assert presented(server).split() == chain.read_text().split()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    chain, _ = certificate(tmp_path, "one")
    _, other = certificate(tmp_path, "two")
    for files in ((chain, other), (chain, tmp_path / "none"), (other, other)):
        with pytest.raises(CannotServe, match="PEM files that belong together"):
            Certificate(*files)
