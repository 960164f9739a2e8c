"""Relations: what FROM offers to a query, and the resolution of names in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.expressions.syntax_tree import Tree
from mavstream_protocol.expressions.tokens import KEYWORDS
from mavstream_protocol.names import closest
from mavstream_protocol.plans.windows import AggregateWindow
from mavstream_protocol.sql.cursor import Name, Snippet
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.windows import WINDOW_COLUMNS

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Column:
    """A column that expressions can name, and its name in expressions of the plan."""

    qualifier: str
    name: str
    reference: str
    """Such as `room`, or `l.room` while a join is planned."""
    bound: bool = False
    """Whether it is a bound of the window that is made here; unqualified names mean it first."""
    merged: bool = False
    """Whether USING made it one with a column of the left side; then only qualified names mean it."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows that a query reads: an output of a plan's node, with the names of its columns."""

    node: str
    columns: tuple[Column, ...]
    times: frozenset[str] = frozenset()
    """The columns that hold the time of the rows."""
    table: bool = False
    window: AggregateWindow | None = None
    """The window that TUMBLE, HOP or SESSION cut it into; the operator above makes it."""
    session_keys: tuple[Name, ...] | None = None
    """The columns of PARTITION BY in SESSION, which must be those of GROUP BY."""
    made_by_window: bool = False
    """Whether its rows are the answers of a window, whose time is just before `window_end`."""
    outputs: tuple[str, ...] = ()
    """The outputs of a split; a reader must choose one."""

    @property
    def alias(self) -> str:
        """Its name in FROM."""
        return self.columns[0].qualifier

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns in the plan."""
        return tuple(column.reference for column in self.columns)

    def named(self, qualifier: str) -> Relation:
        """Return the relation with another name in FROM."""
        columns = tuple(replace(column, qualifier=qualifier) for column in self.columns)
        return replace(self, columns=columns)


class Names:
    """Resolves the columns of expressions; names are found in any case, exact ones first."""

    def __init__(self, source: SqlSource, columns: Sequence[Column]) -> None:
        self._source = source
        self.columns = tuple(columns)

    def find(self, tree: Tree, snippet: Snippet) -> Column:
        """Return the column that a tree of a snippet names; raises InvalidSql."""
        found = self.matching(tree.value)
        if len(found) == 1:
            return found[0]
        raise self._ambiguous(tree, snippet, found) if found else self._unknown(tree, snippet)

    def matching(self, written: str) -> list[Column]:
        """Return the columns that a name may mean."""
        qualifier, _, name = written.rpartition(".")
        fitting = [c for c in self.columns if c.name.lower() == name.lower()]
        if qualifier:
            fitting = [c for c in fitting if c.qualifier.lower() == qualifier.lower()]
        else:
            fitting = [c for c in fitting if not c.merged]
            if any(c.bound for c in fitting):
                return [next(c for c in fitting if c.bound)]
        return [c for c in fitting if c.name == name] or fitting

    def rewritten(self, snippet: Snippet) -> str:
        """Return the text of an expression with columns named as in the plan; raises InvalidSql."""
        return spliced(snippet, lambda tree: self._reference(tree, snippet))

    def _reference(self, tree: Tree, snippet: Snippet) -> str | None:
        if tree.kind != "column":
            return None
        reference = self.find(tree, snippet).reference
        return None if reference == tree.value else quoted(reference)

    def _ambiguous(self, tree: Tree, snippet: Snippet, found: list[Column]) -> InvalidSql:
        ways = " or ".join(f"`{column.qualifier}.{column.name}`" for column in found)
        detail = f"`{tree.value}` may be a column of more than one relation; write {ways}"
        return self._error("ambiguous_field", detail, tree, snippet)

    def _unknown(self, tree: Tree, snippet: Snippet) -> InvalidSql:
        written = snippet.text[tree.start : tree.end]
        qualifier, _, name = tree.value.rpartition(".")
        detail = f"there is no column `{tree.value}`"
        if written.startswith('"') and not qualifier:
            detail += f"; use single quotes for text: '{name}'"
            return self._error("unknown_field", detail, tree, snippet)
        qualifiers = list(dict.fromkeys(c.qualifier for c in self.columns if c.qualifier))
        if qualifier and qualifier.lower() not in (known.lower() for known in qualifiers):
            close = closest(qualifier, qualifiers, 1)
            advice = (
                f"did you mean `{close[0]}`?" if close else f"known are {', '.join(qualifiers) or 'none'}"
            )
            detail = f"there is no `{qualifier}` in FROM; {advice}"
            return self._error("unknown_relation", detail, tree, snippet)
        known = list(
            dict.fromkeys(
                c.name for c in self.columns if not qualifier or c.qualifier.lower() == qualifier.lower()
            )
        )
        close = closest(name, known, 3)
        if name.lower() in WINDOW_COLUMNS:
            detail += "; cut the rows into windows with TUMBLE, HOP or SESSION in FROM"
        elif close:
            detail += f"; did you mean {' or '.join(f'`{one}`' for one in close)}?"
        else:
            listed = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
            detail += f"; known are {listed or 'none'}"
        return self._error("unknown_field", detail, tree, snippet)

    def _error(self, reason: str, detail: str, tree: Tree, snippet: Snippet) -> InvalidSql:
        return self._source.error(reason, detail, snippet.start + tree.start, snippet.start + tree.end)


def quoted(reference: str) -> str:
    """Return a reference as expressions write it: keywords in quotes, except behind a side."""
    return f'"{reference}"' if reference.lower() in KEYWORDS else reference


def spliced(snippet: Snippet, replacement: Callable[[Tree], str | None]) -> str:
    """Return the text of a snippet, with the trees replaced for which a text is given."""
    text, end = "", 0
    for tree, new in _replaced(snippet.tree, replacement):
        text += snippet.text[end : tree.start] + new
        end = tree.end
    return text + snippet.text[end:]


def _replaced(tree: Tree, replacement: Callable[[Tree], str | None]) -> Iterator[tuple[Tree, str]]:
    """Yield the outermost trees for which there is a text, from left to right."""
    new = replacement(tree)
    if new is not None:
        yield tree, new
        return
    for operand in sorted(tree.operands, key=lambda operand: operand.start):
        yield from _replaced(operand, replacement)


def all_columns(names: Sequence[str], qualifier: str = "") -> tuple[Column, ...]:
    """Return the columns of a node by their names in its schema."""
    return tuple(Column(qualifier, name, name) for name in names)
