"""Pieces of translated expressions, and the columns of intermediate results.

An expression that cannot be computed in a row (overflow, domain, cast) is null as a whole, even if a
`coalesce` encloses the part that failed. So each piece has two trees: the value, and whether the row fails. A
value that is used more than once becomes a column, or trees would double with every level.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from mavstream_spark.plans.sql import NULL, Tree, any_of, choice, column, written


@dataclass(frozen=True, slots=True)
class Piece:
    """A value and the condition under which it fails."""

    value: Tree
    fails: Tree | None = None
    """True where the row fails, never null; None if it never does."""
    level: int = 0
    """The number of stages that must be computed first."""

    @property
    def settled(self) -> Tree:
        """The value, null where the row fails."""
        return self.value if self.fails is None else choice([(self.fails, NULL)], self.value)


class Stages:
    """Intermediate columns, in the order in which they can be computed."""

    def __init__(self) -> None:
        self._stages: list[dict[str, Tree]] = []
        self._count = 0

    def named(self, value: Tree, level: int) -> Piece:
        """Return a column with the value of a tree; the column itself never fails."""
        while len(self._stages) <= level:
            self._stages.append({})
        # Field names cannot contain `#`, so no column of the user is hidden.
        name = f"#t{self._count}"
        self._count += 1
        self._stages[level][name] = value
        return Piece(column(name), None, level + 1)

    def atom(self, piece: Piece) -> Piece:
        """Return a piece whose value can be repeated at no cost."""
        if isinstance(piece.value, exp.Column | exp.Boolean | exp.Literal):
            return piece
        found = self.named(piece.value, piece.level)
        if piece.fails is None:
            return found
        return Piece(found.value, piece.fails, found.level)

    def selections(self) -> list[list[str]]:
        """Return the columns that each stage adds, as SQL."""
        return [[f"{written(value)} AS `{name}`" for name, value in stage.items()] for stage in self._stages]


def highest(pieces: tuple[Piece, ...]) -> int:
    """Return the level at which all pieces can be computed."""
    return max((piece.level for piece in pieces), default=0)


def failures(*pieces: Piece) -> Tree | None:
    """Return the condition under which any of the pieces fails."""
    return any_of(piece.fails for piece in pieces)
