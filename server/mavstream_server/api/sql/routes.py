"""The route that does what a statement does: its roles, and how the audit log names it."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_protocol.sql.statements import (
    AddColumn,
    CreateClass,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    InsertRows,
    ObjectKind,
    PauseQuery,
    ResumeQuery,
    SelectRows,
    SetScheduler,
    Show,
    Statement,
)
from mavstream_protocol.tokens import Role

_ANY = (Role.CLIENT, Role.FEEDER)
_ADMIN = (Role.ADMIN,)
_CLIENT = (Role.CLIENT,)
_PLURALS = {
    ObjectKind.STREAM: "streams",
    ObjectKind.TABLE: "tables",
    ObjectKind.QUERY: "queries",
    ObjectKind.CLASS: "classes",
}


class StatementRoute(NamedTuple):
    """A route of the REST API."""

    method: str
    path: str
    roles: tuple[Role, ...]
    """Who may use it, besides administrators."""

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET" or self.path.endswith("/validate")

    @property
    def appends(self) -> bool:
        """Whether it appends rows, which are audited only if they are refused."""
        return self.path.endswith("/tuples")


def route_of(statement: Statement) -> StatementRoute:
    """Return the route that does what a statement does."""
    match statement:
        case SelectRows() | Explain():
            return StatementRoute("POST", "/v1/queries/validate", _ANY)
        case Show():
            return StatementRoute("GET", f"/v1/{_PLURALS[statement.kind]}", _ANY)
        case Describe():
            return StatementRoute("GET", f"/v1/streams/{statement.name}", _ANY)
        case CreateStream():
            return StatementRoute("POST", "/v1/streams", _ANY)
        case AddColumn():
            return StatementRoute("PATCH", f"/v1/streams/{statement.stream}", _ANY)
        case InsertRows():
            return StatementRoute("POST", f"/v1/streams/{statement.stream}/tuples", (Role.FEEDER,))
        case CreateTable():
            return StatementRoute("PUT", f"/v1/tables/{statement.name}", _ANY)
        case CreateClass():
            return StatementRoute("PUT", f"/v1/classes/{statement.query_class.name}", _ADMIN)
        case CreateQuery():
            if statement.replace:
                return StatementRoute("PUT", f"/v1/queries/{statement.spec.name}", _CLIENT)
            return StatementRoute("POST", "/v1/queries", _CLIENT)
        case PauseQuery() | ResumeQuery():
            return StatementRoute("PATCH", f"/v1/queries/{statement.name}", _CLIENT)
        case Drop():
            roles = _CLIENT if statement.kind is ObjectKind.QUERY else _ADMIN
            return StatementRoute("DELETE", f"/v1/{_PLURALS[statement.kind]}/{statement.name}", roles)
        case SetScheduler():
            return StatementRoute("PUT", "/v1/scheduler", _ADMIN)
