"""Browser: what a web page of another site could send to a server on loopback."""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import product

from attack.findings import Findings
from attack.options import Options
from attack.target.raw_http import exchange
from attack.target.target import Target

STREAM = "private"
_HOSTS = (
    *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", ""),
    *("evil.example:80", "localhost:80:80", "[::1", "2130706433.evil.example", "xn--lcalhost-54a"),
)
_ORIGINS = (
    *("http://evil.example", "https://evil.example", "null", "http://localhost.evil.example", "file://"),
    *("http://127.0.0.1.evil.example", "http://localhost@evil.example", "chrome-extension://abc", "http://"),
)
_SIMPLE_TYPES = (
    *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""),
    *("text/plain; application/json", "text/plain;charset=application/json", "TEXT/PLAIN"),
)
_CHANGES = (
    ("POST", f"/v1/streams/{STREAM}/complete"),
    ("POST", f"/v1/streams/{STREAM}/tuples"),
    ("POST", "/v1/streams"),
    ("POST", "/v1/queries"),
    ("PUT", "/v1/scheduler"),
    ("PATCH", "/v1/queries/any"),
    ("DELETE", f"/v1/streams/{STREAM}"),
)
_WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
_JSON = "Content-Type: application/json"


def run(target: Target, options: Options) -> Findings:
    """Send the requests with the token of an administrator, so that nothing but the checks stops them."""
    page = _Page(target)
    target.server.create("/v1/streams", {"name": STREAM, "fields": [{"name": "n", "type": "int"}]})
    for host, (method, path) in product(_HOSTS, (("GET", "/v1/streams"), *_CHANGES)):
        page.send(method, path, (421, 400), f"Host: {host}", _JSON)
    for origin, (method, path) in product(_ORIGINS, _CHANGES):
        page.send(method, path, (403,), page.host, f"Origin: {origin}", _JSON)
    for kind, (_, path) in product(_SIMPLE_TYPES, [each for each in _CHANGES if each[0] == "POST"]):
        page.send("POST", path, (415,), page.host, *([f"Content-Type: {kind}"] if kind else ()))
    for origin in _ORIGINS:
        for path in ("/v1/feed", "/v1/queries/any/results", "/nothing"):
            page.send("GET", path, (403,), page.host, f"Origin: {origin}", *_WEBSOCKET)
        for method, path in _CHANGES:
            asked = (
                f"Access-Control-Request-Method: {method}",
                "Access-Control-Request-Headers: content-type",
            )
            page.send("OPTIONS", path, (400, 403, 404, 405), page.host, f"Origin: {origin}", *asked)
        page.send("GET", "/v1/streams", (200,), page.host, f"Origin: {origin}")
    for host in _HOSTS:
        page.send("GET", "/v1/feed", (421, 400), f"Host: {host}", *_WEBSOCKET)
    state = target.server.http.get(f"/v1/streams/{STREAM}").json()
    page.findings.expect(state.get("position") == 0, "a page has appended rows")
    page.findings.expect(not state.get("complete"), "a page has completed a stream")
    return page.findings


class _Page:
    """Sends requests as a page would, and checks that they are refused and that it may not read answers."""

    def __init__(self, target: Target) -> None:
        self.findings = Findings()
        self.host = "Host: " + target.server.url.removeprefix("http://")
        self._server = target.server
        self._token = "Authorization: " + target.server.header("admin")["Authorization"]

    def send(self, method: str, path: str, expected: Collection[int], *headers: str) -> None:
        last = () if _WEBSOCKET[0] in headers else ("Connection: close",)
        lines = (f"{method} {path} HTTP/1.1", *headers, self._token, *last)
        body = b"{}" if _JSON in headers else b""
        head = "\r\n".join((*lines, f"Content-Length: {len(body)}")).encode() + b"\r\n\r\n"
        begin = time.monotonic()
        answer = exchange(self._server, head + body)
        what = f"{method} {path} with {headers}"
        self.findings.answered(what, answer.status, time.monotonic() - begin)
        self.findings.expect(answer.status in expected, f"{what}: status {answer.status}, not {expected}")
        allowed = [name for name in answer.headers if name.startswith(b"access-control-")]
        self.findings.expect(not allowed, f"{what}: the page may read the answer: {allowed}")
