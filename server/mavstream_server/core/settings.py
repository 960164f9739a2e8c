"""Server settings, from flags, MAVSTREAM_* environment variables and defaults, in this order."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_serializer,
    field_validator,
)

from mavstream_protocol.admission import AdmissionPolicy
from mavstream_protocol.described import Described
from mavstream_protocol.explained import refusal
from mavstream_protocol.hosts import is_loopback
from mavstream_protocol.model_errors import causes, sentence
from mavstream_protocol.quantities import parse_duration, parse_size
from mavstream_protocol.scheduling import Sharing, SourceService
from mavstream_protocol.tokens import Role
from mavstream_server.core.errors import Refused
from mavstream_server.core.machine import machine_memory
from mavstream_server.core.principal import Principal
from mavstream_server.core.tokens import parse_tokens, principals_of, read_tokens

PREFIX = "MAVSTREAM_"
DELIVERIES = ("process", "sync")
_HOST_PATTERN = re.compile(r"\*|(\*\.)?[^\s*:/\[\]]+|[0-9a-fA-F:.]+")
_ORIGIN = re.compile(r"https?://[^/@\s*]+")
_URL = re.compile(_ORIGIN.pattern + "/?")


def _bytes(value: object) -> object:
    """Parse a number of bytes such as `16MiB` or, since environment variables are text, `16777216`."""
    if not isinstance(value, str) or value.isdecimal():
        return value
    try:
        return parse_size(value)
    except ValueError as error:
        raise refusal("size", str(error)) from None


def _microseconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise refusal("duration", str(error)) from None


def _interval(value: object) -> object:
    return None if value in ("off", "0", 0) else value


def _at_least_a_second(value: int) -> int:
    if value < 1_000_000:
        raise refusal("duration", "an engine that is busy may take longer: give 1s or more")
    return value


def _listed(value: object) -> object:
    """Split text at commas: variables hold lists as text."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _host_patterns(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _HOST_PATTERN.fullmatch(value):
            raise refusal("host", f"expected NAME without a port, *.DOMAIN or *, got {value[:80]!r}")
    return values


def _origins(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if value not in ("*", "null") and not _ORIGIN.fullmatch(value):
            raise refusal(
                "origin", f"expected http://HOST[:PORT], https://HOST[:PORT] or *, got {value[:80]!r}"
            )
    return tuple(map(str.lower, values))


def _page_url(value: str) -> str:
    if not _URL.fullmatch(value):
        raise refusal("url", f"expected http://HOST[:PORT] or https://HOST[:PORT], got {value[:80]!r}")
    return value.rstrip("/")


Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=1)]
"""Number of bytes, at least one; text may have a unit."""
Microseconds = Annotated[int, BeforeValidator(_microseconds), Field(ge=1)]
Interval = Annotated[Microseconds | None, BeforeValidator(_interval)]
"""Microseconds; None for never, which is `off` as text."""
Count = Annotated[int, Field(ge=1)]
Listed = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""Several texts; in a variable separated by commas."""


class Settings(Described):
    """Settings of a server. Tokens are secret: neither printing nor dumping settings reveals them."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    data: Path = Path("mavstream-data")
    """Data directory: holds streams, tables, results and the catalog."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """TCP port; 0 selects a free one."""
    page: bool = True
    """Whether the browser page is served, by a process of its own."""
    page_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """TCP port of the page: by default the one after `port`, or a free one if that is 0."""
    page_url: Annotated[str, AfterValidator(_page_url)] | None = None
    """Address at which browsers find the page, if it is not that of the server with the page's port."""
    tokens: dict[SecretStr, Role] = {}
    """Roles by token. Without tokens everything is allowed, and only loopback addresses may be bound."""
    tokens_file: Path | None = None
    """File with tokens, as lines `ROLE:TOKEN` or written by `mavstream token`; read again on SIGHUP."""
    tls_cert: Path | None = None
    """Certificate chain in PEM format; with `tls_key` the server speaks HTTPS. Read again on SIGHUP."""
    tls_key: Path | None = None
    audit_log: Path = Path("audit.jsonl")
    """File of the audit log, relative to the data directory; `off` for none."""
    query_token: bool = False
    """Whether websockets may pass their token as `?token=`, where logs of proxies would show it."""
    allow_host: Annotated[Listed, AfterValidator(_host_patterns)] = ()
    """Names of this server besides loopback names and `host`: `NAME`, `*.DOMAIN` or `*`."""
    allow_origin: Annotated[Listed, AfterValidator(_origins)] = ()
    """Origins of web pages that may use this server, such as `https://app.example.org`."""
    delivery: Literal["process", "sync"] = "process"
    """What acknowledged rows survive: the death of any process (`process`), or also power loss (`sync`)."""
    policy: str | None = None
    """Initial scheduling policy, until one is set through the API; None for the default."""
    policy_options: dict[str, Any] = {}
    admission: AdmissionPolicy = AdmissionPolicy.WARN
    """How to treat new queries that would miss their targets or make others miss theirs."""
    sources: SourceService | None = None
    """How sources are scheduled; None for the way described in the policy's paper."""
    sharing: Sharing = Sharing.CLASS
    """Which queries share equal prefixes: those of the same class, all, or none."""

    max_clock_step: Microseconds = 60_000_000
    """How far arrival times follow a single jump of the wall clock ahead at once, in microseconds; `1m`."""
    max_body_bytes: Bytes = 16 << 20
    max_frame_bytes: Bytes = 16 << 20
    max_queries: Count = 5000
    max_streams: Count = 1000
    max_tables: Count = 1000
    max_table_bytes: Bytes = 64 << 20
    """Maximum size of a table version, both in the request and in memory."""
    max_table_versions: Count = 1000
    """Maximum number of versions per table that rows in the streams may still need."""
    max_producers: Count = 10_000
    """Maximum number of distinct producer names."""
    producer_expiry: Microseconds = 30 * 86_400_000_000
    """Time after which a producer that is not used is removed, in microseconds."""
    max_stage_bytes: Bytes = 1 << 30
    """Maximum disk space of all stages: rows that were sent and are not published yet."""
    max_batch_bytes: Bytes = 64 << 20
    """Maximum size of the stages that are published at once, in memory."""
    stage_expiry: Microseconds = 3_600_000_000
    """Time after which a stage that was not published is removed, in microseconds."""
    max_subscribers: Count = 1000
    max_connections: Count = 2000
    """Maximum number of open requests and websockets."""
    reserved_connections: Annotated[int, Field(ge=0)] = 16
    """Connections beyond these for administrators and health checks."""
    max_wrong_tokens: Count = 30
    """Wrong tokens per address and minute; then other tokens from there are not checked until it is over."""
    max_pending_feeds: Count = 100
    """Maximum number of producers' websockets that have not sent their hello."""
    max_header_bytes: Annotated[Bytes, Field(ge=1024)] = 128 << 10
    """Maximum size of all that precedes the body of a request, and of its trailers."""
    max_url_bytes: Annotated[Bytes, Field(ge=256, le=65535)] = 65535
    header_timeout: Microseconds = 10_000_000
    """Time that a new connection or request has for its headers, in microseconds."""
    body_timeout: Microseconds = 30_000_000
    """Time that a body has to begin and to go on, in microseconds."""
    send_timeout: Microseconds = 30_000_000
    """Time after which a client that does not read is disconnected, in microseconds."""
    hello_timeout: Microseconds = 10_000_000
    """Time that a producer has for its hello, in microseconds."""
    max_disk_bytes: Bytes | None = None
    """Maximum disk space of all stream logs together; None for no limit."""
    credit_bytes: Bytes = 8 << 20
    """Maximum unacknowledged bytes that a producer may have in flight per stream."""
    query_memory: Bytes = Field(default_factory=lambda: machine_memory() // 4)
    """Memory in queues and state beyond which a query fails that has no `memory_limit`; a quarter of all."""
    engine_memory: Bytes = Field(default_factory=lambda: machine_memory() * 6 // 10)
    """Memory of the engine process beyond which the query that holds most of it fails; six tenths of all."""
    result_bytes: Bytes = 16 << 20
    """Result rows retained per query, in bytes."""
    result_time: Microseconds = 3_600_000_000
    """How long result rows are retained, in microseconds; written as `1h` in the flag and the variable."""
    checkpoint_interval: Interval = 5_000_000
    """Time between two checkpoints of a query that has changed, in microseconds; None (`off`) for none."""
    engine_timeout: Annotated[Microseconds, AfterValidator(_at_least_a_second)] = 30_000_000
    """Time in microseconds after which an engine that does not answer is killed and restarted."""

    @field_validator("tokens", mode="before")
    @classmethod
    def _roles(cls, tokens: object) -> object:
        if isinstance(tokens, str):
            return parse_tokens(tokens.split(","))
        if not isinstance(tokens, Mapping):
            raise refusal("tokens", "tokens are written ROLE:TOKEN,ROLE:TOKEN")
        # Keys may also be plain text; they are wrapped, and so hidden, from here on.
        return {SecretStr(key) if isinstance(key, str) else key: role for key, role in tokens.items()}

    @field_validator("policy_options", mode="before")
    @classmethod
    def _options(cls, options: object) -> object:
        if not isinstance(options, str):
            return options
        try:
            return json.loads(options)
        except ValueError as error:
            raise refusal("json", f"policy options are not JSON ({error}): write an object") from None

    @field_serializer("tokens")
    def _hidden(self, tokens: dict[SecretStr, Role]) -> int:
        return len(tokens)

    @classmethod
    def from_environment(cls, env: Mapping[str, str], **flags: Any) -> Settings:
        """Return validated settings; flags that are None count as not given. Raises Refused."""
        values: dict[str, Any] = {
            name: env[PREFIX + name.upper()] for name in cls.model_fields if env.get(PREFIX + name.upper())
        }
        given = {name: value for name, value in flags.items() if value is not None and value != []}
        # Tokens have a single origin: a flag replaces the variables instead of being merged with them.
        if "tokens" in given or "tokens_file" in given:
            values.pop("tokens", None)
            values.pop("tokens_file", None)
        values |= given
        if values.get("tokens") and values.get("tokens_file"):
            raise Refused(
                "tokens are given twice, as text and as a file: use MAVSTREAM_TOKENS or MAVSTREAM_TOKENS_FILE"
            )
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            raise _refused(error, set(given)) from None
        if (settings.tls_cert is None) != (settings.tls_key is None):
            raise Refused("TLS needs a certificate and its key: give both --tls-cert and --tls-key")
        settings.check_address()
        return settings

    def check_address(self) -> None:
        """Raise Refused if other machines could reach a server without tokens, or with ones to be guessed."""
        self.principals()
        if not self.guarded and not is_loopback(self.host):
            raise Refused(
                f"host '{self.host}' can be reached from other machines and no token is configured, so "
                "anybody could change and read everything: set MAVSTREAM_TOKENS=admin:SECRET (or "
                "MAVSTREAM_TOKENS_FILE), or bind to 127.0.0.1",
                code="open_to_all",
            )

    @property
    def guarded(self) -> bool:
        """Whether requests need a token."""
        return bool(self.tokens) or self.tokens_file is not None

    def principals(self) -> dict[str, Principal]:
        """Return the holders of tokens by the hash of their secret; reads the file anew. Raises Refused."""
        loopback = is_loopback(self.host)
        if self.tokens_file is not None:
            return read_tokens(self.tokens_file, loopback=loopback)
        return principals_of(self.tokens, loopback=loopback)

    @property
    def limits(self) -> dict[str, int]:
        """The limits as shown to clients; those that are not set are left out."""
        names = (name for name in type(self).model_fields if name.startswith("max_"))
        values = {name: getattr(self, name) for name in names if name != "max_clock_step"}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def catalog_file(self) -> Path:
        """Path of the catalog file."""
        return self.data / "catalog.sqlite"

    @property
    def audit_file(self) -> Path | None:
        """Path of the audit log, or None if there is none."""
        return None if str(self.audit_log) == "off" else self.data / self.audit_log

    @property
    def streams_directory(self) -> Path:
        """Directory with one log per stream."""
        return self.data / "streams"

    @property
    def stages_directory(self) -> Path:
        """Directory with the stages of each stream."""
        return self.data / "stages"

    @property
    def tables_directory(self) -> Path:
        """Directory with one directory per stored table."""
        return self.data / "tables"

    @property
    def results_directory(self) -> Path:
        """Directory with one result log per query."""
        return self.data / "results"

    @property
    def checkpoints_directory(self) -> Path:
        """Directory with the checkpoints of each query."""
        return self.data / "checkpoints"


def _refused(error: ValidationError, given: set[str]) -> Refused:
    messages = []
    for item in causes(error.errors(include_url=False, include_input=False)):
        name = str(item["loc"][0]) if item["loc"] else "settings"
        where = f"--{name.replace('_', '-')}" if name in given else PREFIX + name.upper()
        messages.append(f"{where}: {sentence(item, 'the value', shown=False)}")
    return Refused("; ".join(messages), code="invalid_settings")
