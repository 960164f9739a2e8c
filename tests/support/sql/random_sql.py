"""Random SQL over random streams: the same text for our planner and for DuckDB, but for the windows.

Streams have no late rows and are complete, so that a query over the whole table gives the same rows. TUMBLE
and HOP become subqueries for DuckDB, which has no window functions over tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.support.differential.columns import EVENT_TIME, INT, POOL, TIMESTAMP, ColumnShape, Domain, shapes
from tests.support.differential.expressions import AggregateWriter, ExpressionWriter
from tests.support.differential.scripts import Rows, StreamScript, Times, random_times

from mavstream_protocol.expressions.intervals import format_interval

INSTANT = "CREATE MACRO instant(us) AS make_timestamp(us)"
"""A function that windows need in DuckDB; translators know the other name, and change it."""
BOUNDS = (ColumnShape("window_start", TIMESTAMP), ColumnShape("window_end", TIMESTAMP))


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL in both dialects, with the columns that it gives."""

    ours: str
    theirs: str
    columns: tuple[ColumnShape, ...]

    @classmethod
    def alike(cls, template: str, columns: Sequence[ColumnShape], **parts: Sql) -> Sql:
        """Fill both dialects into a template."""
        ours = template.format(**{key: part.ours for key, part in parts.items()})
        theirs = template.format(**{key: part.theirs for key, part in parts.items()})
        return cls(ours, theirs, tuple(columns))


@dataclass(frozen=True, slots=True)
class SqlCase:
    """A query over scripted streams."""

    seed: int
    scripts: tuple[StreamScript, ...]
    sql: Sql


def random_sql_case(seed: int) -> SqlCase:
    """Make the streams and the query of a seed."""
    random = Random(seed)
    times = random_times(random)
    domains = random.sample([d for d in POOL if d.field.name != "at"], random.randint(2, 5))
    scripts = tuple(_script(random, f"s{number}", domains, times) for number in range(2))
    return SqlCase(seed, scripts, _QueryWriter(random, scripts, times).query())


def _script(random: Random, name: str, domains: list[Domain], times: Times) -> StreamScript:
    now, rows = 0, []
    for _ in range(random.choice((0, 5, 20, 40, 40))):
        now += random.choice((0, 1, 1, 3, 15))
        values = [domain.value(random, times.base) for domain in domains]
        rows.append((times.base + (now - random.randrange(3)) * times.tick, *values))
    fields = (EVENT_TIME, *(domain.field for domain in domains))
    steps = (Rows(tuple(rows)),) if rows else ()
    return StreamScript(name, fields, EVENT_TIME.name, 3 * times.tick, steps)


class _QueryWriter:
    """Writes queries from the outside in."""

    def __init__(self, random: Random, scripts: Sequence[StreamScript], times: Times) -> None:
        self._random = random
        self._scripts = scripts
        self._times = times

    def query(self) -> Sql:
        """Write a whole query."""
        kinds = (
            *(self._rows, self._grouped, self._grouped, self._sessions, self._grouped_late),
            *(self._distinct, self._union, self._interval_join, self._window_join, self._except),
        )
        return self._random.choice(kinds)()

    def _stream(self) -> Sql:
        script = self._random.choice(self._scripts)
        return Sql(script.name, script.name, shapes(script.fields))

    def _relation(self) -> Sql:
        """Write a stream, or a query over it that keeps the time of its rows."""
        stream = self._stream()
        if self._random.random() < 0.6:
            return stream
        kept = [c for c in stream.columns[1:] if self._random.random() < 0.8]
        columns = (stream.columns[0], *kept)
        listed = ", ".join(column.name for column in columns)
        where = self._condition(stream.columns)
        return Sql.alike(f"(SELECT {listed} FROM {{below}} WHERE {where})", columns, below=stream)

    def _expressions(self, columns: Sequence[ColumnShape], qualifier: str = "") -> ExpressionWriter:
        named = {qualifier + column.name: column for column in columns}
        return ExpressionWriter(self._random, named, self._times.base)

    def _condition(self, columns: Sequence[ColumnShape], qualifier: str = "") -> str:
        return self._expressions(columns, qualifier).predicate(1).replace("{", "{{").replace("}", "}}")

    def _items(self, columns: Sequence[ColumnShape], qualifier: str = "") -> list[tuple[str, ColumnShape]]:
        writer = self._expressions(columns, qualifier)
        items = []
        for number in range(self._random.randint(1, 3)):
            column = self._random.choice(columns)
            if self._random.random() < 0.5 and column.name not in [c.name for _, c in items]:
                items.append((qualifier + column.name, column))
            else:
                text, exact = writer.scalar(column.type, 1)
                made = ColumnShape(f"e{number}", column.type, exact)
                items.append((f"{text} AS e{number}", made))
        return items

    def _rows(self) -> Sql:
        below = self._relation()
        items = self._items(below.columns)
        where = f" WHERE {self._condition(below.columns)}" if self._random.random() < 0.6 else ""
        listed = ", ".join(text for text, _ in items)
        return Sql.alike(f"SELECT {listed} FROM {{below}} a{where}", [c for _, c in items], below=below)

    def _windows(self, below: Sql, like: tuple[int, int] | None = None) -> tuple[Sql, tuple[int, int]]:
        """Cut a relation into windows; for DuckDB each row is repeated for each of its windows."""
        hop, size = like or self._extent()
        time = "" if self._random.random() < 0.3 else f"{EVENT_TIME.name}, "
        step, length = (format_interval(number * self._times.tick) for number in (hop, size))
        extents = length if hop == size else f"{step}, {length}"
        function = "TUMBLE" if hop == size else "HOP"
        micros, span = hop * self._times.tick, size * self._times.tick
        first = f"floordiv(epoch_us(ts) - {span}, {micros}) + 1"
        theirs = (
            f"(SELECT * EXCLUDE (_k), instant(_k * {micros}) AS window_start, "
            f"instant(_k * {micros} + {span}) AS window_end FROM "
            f"(SELECT *, unnest(range({first}, floordiv(epoch_us(ts), {micros}) + 1)) AS _k "
            f"FROM {below.theirs}))"
        )
        ours = f"{function}({below.ours}, {time}{extents})"
        return Sql(ours, theirs, (*below.columns, *BOUNDS)), (hop, size)

    def _extent(self) -> tuple[int, int]:
        size = self._random.choice((2, 5, 12, 40))
        hop = size if self._random.random() < 0.5 else self._random.choice((1, 3, 7, size + 3))
        return max(hop, size // 8), size

    def _grouped(self) -> Sql:
        below = self._relation()
        windows, _ = self._windows(below)
        return self._aggregated(below, windows, ["window_start", "window_end"], self._keys(below))

    def _sessions(self) -> Sql:
        """Write an aggregate per session; for DuckDB the rows between two gaps of a group are numbered."""
        below = self._relation()
        keys = self._keys(below)
        gap = self._random.choice((1, 2, 5, 20)) * self._times.tick
        names = [column.name for column in keys]
        partition = f"PARTITION BY {', '.join(names)}" if names and self._random.random() < 0.4 else ""
        relation = f"{below.ours} {partition}, ts" if partition else f"{below.ours}, ts"
        group = f"PARTITION BY {', '.join(names)}" if names else ""
        whole = ", ".join([*names, "_s"])
        begins = f"coalesce(epoch_us(ts) - lag(epoch_us(ts)) OVER ({group} ORDER BY ts) >= {gap}, TRUE)"
        theirs = (
            f"(SELECT * EXCLUDE (_b, _s), min(ts) OVER (PARTITION BY {whole}) AS window_start, "
            f"max(ts) OVER (PARTITION BY {whole}) + {format_interval(gap)} AS window_end FROM "
            f"(SELECT *, sum(CAST(_b AS INT)) OVER ({group} ORDER BY ts) AS _s FROM "
            f"(SELECT *, {begins} AS _b FROM {below.theirs})))"
        )
        windows = Sql(f"SESSION({relation}, {format_interval(gap)})", theirs, (*below.columns, *BOUNDS))
        return self._aggregated(below, windows, ["window_start", "window_end"], keys, filtered=False)

    def _keys(self, below: Sql) -> list[ColumnShape]:
        exact = [column for column in below.columns if column.exact]
        return self._random.sample(exact, min(len(exact), self._random.choice((0, 1, 1, 2))))

    def _grouped_late(self) -> Sql:
        """Write an aggregate over the aggregates of a finer window."""
        below = self._relation()
        inner, (hop, _) = self._windows(below)
        listed = "count(*) AS n, window_start, window_end"
        counts = Sql.alike(
            f"(SELECT {listed} FROM {{w}} GROUP BY window_start, window_end HAVING count(*) > 1)",
            (ColumnShape("n", INT),),
            w=inner,
        )
        size = hop * self._random.choice((2, 5)) * self._times.tick
        ours = f"TUMBLE({counts.ours}, {format_interval(size)})"
        # The rows of a window belong to the time just before its end.
        start = f"instant(floordiv(epoch_us(window_end) - 1, {size}) * {size})"
        end = f"{start} + {format_interval(size)}"
        theirs = f"(SELECT n, {start} AS window_start, {end} AS window_end FROM {counts.theirs})"
        listed = "sum(n) AS total, max(n) AS most, window_end"
        columns = (ColumnShape("total", INT), ColumnShape("most", INT), BOUNDS[1])
        template = f"SELECT {listed} FROM {{w}} GROUP BY window_start, window_end"
        return Sql.alike(template, columns, w=Sql(ours, theirs, columns))

    def _aggregated(
        self, below: Sql, windows: Sql, bounds: list[str], keys: list[ColumnShape], filtered: bool = True
    ) -> Sql:
        random = self._random
        writer = AggregateWriter(random, below.columns, self._times.base, False, False)
        computed = [writer.column(f"c{number}", keys) for number in range(random.randint(1, 3))]
        items = [(c.name, c) for c in keys] + [(f"{text} AS {c.name}", c) for text, c in computed]
        items += [(column.name, column) for column in BOUNDS if random.random() < 0.7]
        if random.random() < 0.3:
            random.shuffle(items)
        where = f" WHERE {self._condition(below.columns)}" if filtered and random.random() < 0.4 else ""
        having = ""
        if random.random() < 0.4:
            having = f" HAVING {random.choice(('count(*) > 1', 'max(ts) <= window_end', 'sum(1) % 2 = 1'))}"
        group = ", ".join([*(c.name for c in keys), *bounds])
        listed = ", ".join(text for text, _ in items)
        template = f"SELECT {listed} FROM {{w}}{where} GROUP BY {group}{having}"
        return Sql.alike(template, [c for _, c in items], w=windows)

    def _distinct(self) -> Sql:
        below = self._relation()
        windows, _ = self._windows(below)
        exact = [column for column in below.columns if column.exact]
        kept = self._random.sample(exact, min(len(exact), self._random.choice((1, 2))))
        columns = [*kept, *BOUNDS]
        listed = ", ".join(column.name for column in columns)
        return Sql.alike(f"SELECT DISTINCT {listed} FROM {{w}}", columns, w=windows)

    def _union(self) -> Sql:
        first = self._rows()
        other = self._relation()
        writer = self._expressions(other.columns)
        items = [
            f"{writer.scalar(column.type, 1, True)[0]} AS o{number}"
            for number, column in enumerate(first.columns)
        ]
        second = Sql.alike(f"SELECT {', '.join(items)} FROM {{below}} b", first.columns, below=other)
        return Sql.alike("{first} UNION ALL {second}", first.columns, first=first, second=second)

    def _except(self) -> Sql:
        below = self._stream()
        size = self._extent()[1]
        exact = [column for column in below.columns[1:] if column.exact]
        columns = [*self._random.sample(exact, min(1, len(exact))), *BOUNDS]
        listed = ", ".join(column.name for column in columns)
        sides = []
        for _ in range(2):
            windows, _ = self._windows(self._stream(), (size, size))
            where = f" WHERE {self._condition(below.columns)}" if self._random.random() < 0.6 else ""
            sides.append(Sql.alike(f"SELECT {listed} FROM {{w}}{where}", columns, w=windows))
        if len(columns) == len(BOUNDS):
            return self._rows()
        return Sql.alike("{left} EXCEPT {right}", columns, left=sides[0], right=sides[1])

    def _pairs(self, left: Sql, right: Sql) -> tuple[str, str, list[ColumnShape]]:
        """Return keys, the list of SELECT and its columns for a join of `a` and `b`."""
        random = self._random
        shared = [c.name for c in left.columns if c.exact and c in right.columns and c.name != "ts"]
        shared = [name for name in shared if not name.startswith("window_")]
        keys = "".join(f"a.{name} = b.{name} AND " for name in random.sample(shared, min(len(shared), 1)))
        items = [(f"{s}.{c.name} AS {s}_{c.name}", replace(c, name=f"{s}_{c.name}"))
                 for s, side in (("a", left), ("b", right)) for c in side.columns]  # fmt: skip
        chosen = random.sample(items, min(len(items), random.randint(1, 4)))
        return keys, ", ".join(text for text, _ in chosen), [c for _, c in chosen]

    def _join_where(self, left: Sql, right: Sql) -> str:
        if self._random.random() < 0.5:
            return ""
        named = {f"a.{c.name}": c for c in left.columns} | {f"b.{c.name}": c for c in right.columns}
        return f" WHERE {ExpressionWriter(self._random, named, self._times.base).predicate(1)}"

    def _interval_join(self) -> Sql:
        left, right = self._relation(), self._relation()
        keys, listed, columns = self._pairs(left, right)
        low, high = (format_interval(self._random.choice((0, 1, 4, 10)) * self._times.tick) for _ in range(2))
        time = self._random.choice(
            (
                f"a.ts BETWEEN b.ts - {low} AND b.ts + {high}",
                f"b.ts BETWEEN a.ts - {low} AND a.ts + {high}",
                f"b.ts >= a.ts - {low} AND b.ts <= a.ts + {high}",
            )
        )
        where = self._join_where(left, right)
        template = f"SELECT {listed} FROM {{left}} a JOIN {{right}} b ON {keys}{time}{where}"
        return Sql.alike(template, columns, left=left, right=right)

    def _window_join(self) -> Sql:
        left, right = self._relation(), self._relation()
        keys, listed, columns = self._pairs(left, right)
        first, extent = self._windows(left)
        second, _ = self._windows(right, extent)
        bound = "a.window_start = b.window_start AND a.window_end = b.window_end"
        items = f"{listed}, a.window_start AS since" if self._random.random() < 0.5 else listed
        if items != listed:
            columns = [*columns, replace(BOUNDS[0], name="since")]
        where = self._join_where(left, right)
        template = f"SELECT {items} FROM {{left}} a JOIN {{right}} b ON {keys}{bound}{where}"
        return Sql.alike(template, columns, left=first, right=second)
