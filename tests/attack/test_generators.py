"""The fuzzers' generators: reproducible, and wide enough to reach every route and message."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest
from attack.fuzz.frames import BINARY, CLOSE, CONTINUATION, PING, TEXT, FrameReader, compressed, frame
from attack.fuzz.mutations import changed, flip
from attack.fuzz.requests import request
from attack.fuzz.sessions import Ending, session
from attack.fuzz.socket_sender import sent_back
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from mavstream_server.api.app import create_app
from mavstream_server.core.settings import Settings


def test_a_seed_repeats_the_same_requests_and_sessions() -> None:
    assert [request(7, n) for n in range(200)] == [request(7, n) for n in range(200)]
    assert [session(7, n, "q") for n in range(50)] == [session(7, n, "q") for n in range(50)]
    assert [request(7, n) for n in range(20)] != [request(8, n) for n in range(20)]
    assert [session(7, n, "q") for n in range(20)] != [session(8, n, "q") for n in range(20)]


def test_requests_reach_every_operation_of_the_document(tmp_path: Path) -> None:
    paths = create_app(Settings(data=tmp_path, audit_log=Path("off"))).openapi()["paths"]
    sent = {(each.method, each.path.split("?")[0]) for each in (request(1, n) for n in range(5000))}
    for path, operations in paths.items():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        for method in operations:
            assert any(one == method.upper() and pattern.fullmatch(at) for one, at in sent), (method, path)


def test_requests_are_valid_ones_and_all_kinds_of_mutations() -> None:
    made = [request(1, n) for n in range(2000)]
    bodies = [each.body for each in made if each.body is not None]
    assert {each.role for each in made} == {"admin", "client", "feeder"}
    assert any(each.framing is not None for each in made)
    assert any("Idempotency-Key" in each.headers for each in made)
    assert any(_is_json(body) for body in bodies)
    assert any(not _is_json(body) for body in bodies)
    for each in made:
        written = each.bytes("localhost", "secret", "q-1")
        assert b"{query}" not in written.split(b"\r\n")[0]
        assert written.endswith(each.body or b"")


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def test_sessions_have_every_ending_and_most_kinds_of_frames() -> None:
    made = [session(1, n, "q-1") for n in range(300)]
    assert {each.ending for each in made} == set(Ending)
    assert {each.path.split("?")[0] for each in made} >= {"/v1/feed", "/v1/queries/q-1/results"}
    assert {True, False} == {each.compression for each in made}
    opcodes = {data[0] & 0xF for each in made for data in each.frames if data}
    assert {CONTINUATION, TEXT, BINARY, CLOSE} <= opcodes


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_are_those_that_a_server_reads(size: int) -> None:
    payload = bytes(n % 251 for n in range(size))
    server = ServerProtocol(state=State.OPEN)
    server.receive_data(frame(BINARY, payload))
    (event,) = server.events_received()
    assert isinstance(event, Frame)
    assert bytes(event.data) == payload


def test_frames_of_a_server_are_read_however_they_are_cut() -> None:
    server = ServerProtocol(state=State.OPEN)
    server.send_text(b"a" * 70_000)
    server.send_ping(b"p")
    server.send_close(4400, "why")
    sent = b"".join(server.data_to_send())
    for piece in (1, 7, 1 << 20):
        reader, found = FrameReader(), []
        for start in range(0, len(sent), piece):
            found += reader.feed(sent[start : start + piece])
        assert [each.opcode for each in found] == [TEXT, PING, CLOSE]
        assert (len(found[0].payload), found[2].close_code) == (70_000, 4400)


def test_compressed_payloads_are_those_of_the_extension() -> None:
    from websockets.extensions.permessage_deflate import PerMessageDeflate

    extension = PerMessageDeflate(True, True, 15, 15)
    packed = Frame(Opcode.TEXT, compressed(b"abc" * 100), rsv1=True)
    assert bytes(extension.decode(packed).data) == b"abc" * 100


def test_mutations_change_what_they_get() -> None:
    random, data, value = Random(1), b"0123456789" * 3, {"a": [1, {"b": "text"}], "c": None}
    assert sum(flip(random, data) != data for _ in range(200)) > 190
    assert sum(changed(random, value) != value for _ in range(200)) > 190
    assert flip(random, b"")


def test_a_close_code_that_was_sent_may_come_back() -> None:
    assert sent_back(frame(CLOSE, (4592).to_bytes(2, "big"))) == {4592}
    assert sent_back(frame(CLOSE, (1011).to_bytes(2, "big"))) == frozenset(), "that is the server's own"
    assert sent_back(frame(PING, (4592).to_bytes(2, "big"))) == frozenset()
    assert sent_back(frame(CLOSE, b"")) == frozenset()
