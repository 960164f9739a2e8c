"""A query that is being composed: its SQL and its operators, which are two forms of one plan."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mavstream import AsyncClient
from mavstream_page.composer.editing import renamed
from mavstream_page.composer.operators import Operators, operators_of
from mavstream_page.composer.reading import Reading, ends, read_operators, read_plan
from mavstream_protocol import InvalidObject, Plan
from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.sql import Catalog, parse_select, plan_to_sql
from mavstream_protocol.wire.resources import Validation

_MOST_STATES = 200
"""How many edits can be undone."""


@dataclass(frozen=True, slots=True)
class _State:
    sql: str = ""
    operators: Operators = field(default_factory=dict)
    root: str = ""
    by_sql: bool = True


class Draft:
    """The composed query, and the result of checking it."""

    def __init__(self) -> None:
        self.sql = ""
        self.operators: Operators = {}
        self.root = ""
        """The answer as it is named; another operator if nothing has this name or something reads it."""
        self.by_sql = True
        """Whether the SQL was edited last: then the operators follow it, otherwise it follows them."""
        self.revision = 0
        """Grows when operators change in another way than by `fill`."""
        self.catalog = Catalog()
        self.reading = Reading()
        self.validation: Validation | None = None
        """What the server says about the plan; None before its answer."""
        self.sql_is_old = False
        """Whether the operators have no SQL, because they are incomplete."""
        self.operators_are_old = False
        """Whether the SQL has no operators, because it cannot be read."""
        self._done: list[_State] = []
        self._undone: list[_State] = []
        self._typed = ""

    @property
    def plan(self) -> Plan | None:
        """The plan, if it could be read."""
        return self.reading.plan

    @property
    def errors(self) -> tuple[ProblemItem, ...]:
        """Why there is no plan, or why it is not valid; those of SQL have a line and a column."""
        if self.reading.errors or self.validation is None:
            return self.reading.errors
        return self.validation.errors

    @property
    def ready(self) -> bool:
        """Whether there is a plan without errors."""
        return self.plan is not None and not self.errors

    @property
    def answer(self) -> str:
        """The operator whose rows are the answer; empty if there is none."""
        last = ends(self.operators)
        node = self.root.partition(".")[0]
        return node if node in last else (last[-1] if last else "")

    def errors_of(self, name: str) -> list[str]:
        """Return what is wrong with an operator."""
        prefix = f"nodes/{name}"
        pointed = [(f"{each.pointer.strip('/').removeprefix('plan/')}/", each.detail) for each in self.errors]
        return [detail for pointer, detail in pointed if pointer.startswith(f"{prefix}/")]

    def write(self, sql: str) -> None:
        """Replace the SQL, by typing; the operators follow if it can be read."""
        if sql == self.sql:
            return
        if not self.by_sql:
            self._remember()
        self.sql, self.by_sql = sql, True
        self.read()

    @contextmanager
    def edit(self, typed: str = "") -> Iterator[Operators]:
        """Change the operators; the SQL follows if they are complete. Nothing changes if it raises.

        `typed` names what is typed into: edits of the same in a row are undone together.
        """
        before = self._state()
        try:
            yield self.operators
        except BaseException:
            self._restore(before)
            raise
        if self.operators != before.operators:
            if not typed or typed != self._typed or self.by_sql:
                self._remember(before)
            self._typed = typed
            self.revision += 1
            self.by_sql = False
            self.read()

    def fill(self, name: str, texts: dict[str, str]) -> None:
        """Change fields of an operator, by typing."""
        revision = self.revision
        with self.edit(name) as operators:
            operators[name].texts |= {
                key: text for key, text in texts.items() if key in operators[name].texts
            }
        self.revision = revision

    def rename(self, name: str, new: str) -> None:
        """Give an operator another name; raises ValueError if it cannot have it."""
        if name != new:
            with self.edit() as operators:
                self.operators = renamed(operators, name, new)
                if self.root == name:
                    self.root = new

    def put(self, plan: Plan) -> None:
        """Replace everything by a plan."""
        with self.edit():
            self.operators, self.root = operators_of(plan), plan.root

    def read(self) -> None:
        """Read what was edited last, and write the other form; never raises."""
        self.validation = None
        if self.by_sql:
            self._read_sql()
        else:
            self._read_operators()

    async def validate(self, client: AsyncClient) -> None:
        """Let the server validate the plan and say what it will cost; raises MavstreamError."""
        plan = self.plan
        if plan is None or self.reading.errors:
            return
        validation = await client.validate(plan)
        if self.plan is plan:
            self.validation = validation

    def undo(self) -> None:
        """Take the last edit back."""
        if self._done:
            self._undone.append(self._state())
            self._restore(self._done.pop())
            self.read()

    def redo(self) -> None:
        """Do again what was undone."""
        if self._undone:
            self._done.append(self._state())
            self._restore(self._undone.pop())
            self.read()

    @property
    def can_undo(self) -> bool:
        """Whether there is an edit to take back."""
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        """Whether something was undone."""
        return bool(self._undone)

    def refuse(self, reason: str) -> None:
        """Say why it is not valid, where the reason has no place."""
        problem = ProblemItem(pointer="", code="refused", detail=reason)
        self.reading = Reading(self.reading.plan, self.reading.schemas, (problem,))

    def _read_sql(self) -> None:
        self.sql_is_old = self.operators_are_old = False
        if not self.sql.strip():
            self.reading, self.operators, self.root = Reading(), {}, ""
            return
        try:
            plan = parse_select(self.sql, self.catalog)
        except InvalidObject as error:
            self.reading = Reading(None, self.reading.schemas, tuple(error.items))
            self.operators_are_old = True
            return
        self.reading = read_plan(plan, self.catalog)
        operators = operators_of(plan)
        self.root = plan.root
        if operators != self.operators:
            self.operators = operators
            self.revision += 1

    def _read_operators(self) -> None:
        self.operators_are_old = False
        self.reading = read_operators(self.operators, self.root, self.catalog)
        self.sql_is_old = self.plan is None or bool(self.reading.errors)
        if not self.operators:
            self.sql, self.sql_is_old = "", False
        elif self.plan is not None and not self.sql_is_old:
            self.sql = plan_to_sql(self.plan, self.catalog)

    def _state(self) -> _State:
        return _State(self.sql, copy.deepcopy(self.operators), self.root, self.by_sql)

    def _restore(self, state: _State) -> None:
        self.sql, self.root, self.by_sql = state.sql, state.root, state.by_sql
        self.operators = copy.deepcopy(state.operators)
        self.revision += 1
        self._typed = ""

    def _remember(self, state: _State | None = None) -> None:
        self._done = [*self._done[1 - _MOST_STATES :], state or self._state()]
        self._undone.clear()
