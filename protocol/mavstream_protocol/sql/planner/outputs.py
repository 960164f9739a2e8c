"""The list of SELECT: names and expressions of the columns that a query gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mavstream_protocol.sql.cursor import Snippet
from mavstream_protocol.sql.planner.builder import Span
from mavstream_protocol.sql.planner.relations import Column, Names, quoted
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.tree import Item, Star


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result: its name and either the column that it hands on or an expression."""

    name: str
    column: Column | None
    snippet: Snippet | None
    """What is written; None for a column of `*`."""
    span: Span

    def text(self, names: Names) -> str:
        """Return its expression in the plan."""
        if self.snippet is not None:
            return names.rewritten(self.snippet)
        assert self.column is not None
        return quoted(self.column.reference)


def only_star(items: Sequence[Star | Item]) -> bool:
    """Whether a query hands on all columns: `SELECT *`."""
    return len(items) == 1 and isinstance(items[0], Star) and items[0].qualifier is None


def outputs_of(items: Iterable[Star | Item], names: Names, source: SqlSource) -> list[Output]:
    """Return the columns of a list of SELECT; raises InvalidSql."""
    found: list[Output] = []
    for item in items:
        if isinstance(item, Star):
            found += _of_star(item, names, source)
        else:
            found.append(_of_item(item, names, source))
    return found


def check_distinct_names(outputs: Iterable[Output], source: SqlSource) -> None:
    """Refuse two columns of the same name; raises InvalidSql."""
    seen: set[str] = set()
    for output in outputs:
        if output.name in seen:
            raise source.error(
                "duplicate_column",
                f"two columns are named `{output.name}`; name one of them otherwise with AS",
                *output.span,
            )
        seen.add(output.name)


def computation(outputs: Iterable[Output], names: Names) -> dict[str, str]:
    """Return the expressions of columns as plans write them."""
    return {output.name: output.text(names) for output in outputs}


def spans_of(outputs: Iterable[Output]) -> dict[str, Span]:
    """Return the places of the expressions, by their pointers in a node."""
    return {f"compute/{output.name}": output.span for output in outputs}


def _of_star(star: Star, names: Names, source: SqlSource) -> list[Output]:
    span = (star.start, star.end)
    columns = [column for column in names.columns if not column.merged]
    if star.qualifier is None:
        columns = [column for column in columns if not (column.bound and column.qualifier)]
    if star.qualifier is not None:
        wanted = star.qualifier.value.lower()
        columns = [column for column in columns if column.qualifier.lower() == wanted]
        if not columns:
            known = ", ".join(dict.fromkeys(c.qualifier for c in names.columns if c.qualifier))
            detail = f"there is no `{star.qualifier.value}` in FROM; known are {known or 'none'}"
            raise source.error("unknown_relation", detail, *span)
    taken: set[str] = set()
    found = []
    for column in columns:
        # Columns of equal names get the name of their relation, as plans have distinct names.
        name = column.name if column.name not in taken else f"{column.qualifier}_{column.name}"
        taken.add(name)
        found.append(Output(name, column, None, span))
    return found


def _of_item(item: Item, names: Names, source: SqlSource) -> Output:
    snippet, tree = item.expression, item.expression.tree
    span = (snippet.start, snippet.end)
    column = names.find(tree, snippet) if tree.kind == "column" else None
    if item.alias is not None:
        return Output(item.alias.value, column, snippet, span)
    if column is not None:
        return Output(tree.value.rpartition(".")[2], column, snippet, span)
    if tree.kind == "call":
        return Output(tree.value, None, snippet, span)
    raise source.error(
        "missing_name", f"name the column `{snippet.text}` with AS, for example AS value", *span
    )
