"""Edits of a graph of operators: add, connect, disconnect, insert, remove, rename."""

from __future__ import annotations

from mavstream_page.composer.operators import INPUTS, Operator, Operators, new_operator
from mavstream_protocol.names import read_name

Edge = tuple[str, str]
"""An input as it is named (`node` or `node.output`), and the operator that reads it."""


def edges(operators: Operators) -> list[tuple[str, str, str]]:
    """Return all edges: the input as it is named, the operator that reads it, and the field that names it."""
    return [
        (each, name, field)
        for name, operator in operators.items()
        for field, each in operator.reads()
        if each.partition(".")[0] in operators
    ]


def add(operators: Operators, op: str, after: str | None = None, **texts: str) -> str:
    """Add an operator and return its name; behind `after` it takes over all that read that one."""
    stem = texts.get("stream", texts.get("table", op)).rpartition(":")[2] or op
    name = next(each for n in range(1, 1000) if (each := stem if n == 1 else f"{stem}_{n}") not in operators)
    operators[name] = new_operator(op, **texts)
    if after is not None and takes_input(operators[name]) and operators[after].op != "table":
        insert(operators, name, _output(operators, after))
    return name


def insert(operators: Operators, name: str, from_: str, to: str | None = None) -> None:
    """Put an operator between another and what reads that: one operator, or all of them."""
    taken_over = [edge for edge in edges(operators) if edge[0] == from_ and to in (None, edge[1])]
    connect(operators, from_, name)
    for reference, reader, field in taken_over:
        _replace(operators[reader], field, reference, _output(operators, name))


def connect(operators: Operators, from_: str, to: str) -> None:
    """Let an operator read another; raises ValueError with the reason if it cannot."""
    below, reader = from_.partition(".")[0], operators[to]
    if not takes_input(reader):
        raise ValueError(f"{to} reads a {reader.op if reader.op == 'table' else 'stream'}, no operator")
    if below == to or to in _below(operators, below):
        raise ValueError(f"{to} cannot read {below}: rows would go in a circle")
    from_ = _output(operators, from_)
    if operators[below].op == "table" and reader.op != "join":
        raise ValueError(f"{to} cannot read {below}: a table is the right side of a join")
    texts = reader.texts
    if "inputs" in texts:
        listed = [each for _, each in reader.reads()]
        texts["inputs"] = ", ".join([*listed, from_] if from_ not in listed else listed)
    elif "input" in texts:
        texts["input"] = from_
    elif operators[below].op == "table" or texts["left"]:
        texts["right"] = from_
    else:
        texts["left"] = from_


def disconnect(operators: Operators, edge: Edge) -> None:
    """Remove an edge."""
    for reference, reader, field in edges(operators):
        if (reference, reader) == edge:
            _replace(operators[reader], field, reference, "")


def remove(operators: Operators, name: str) -> None:
    """Remove an operator; those that read it read its first input instead."""
    removed = operators.pop(name)
    below = next((each for _, each in removed.reads()), "")
    for operator in operators.values():
        for field, each in operator.reads():
            if each.partition(".")[0] == name:
                _replace(operator, field, each, below)


def renamed(operators: Operators, name: str, new: str) -> Operators:
    """Return the operators with another name for one of them; raises ValueError if it cannot have it."""
    if read_name(new) in operators:
        raise ValueError(f"there is an operator {new} already: choose another name")
    made = {new if each == name else each: operator for each, operator in operators.items()}
    for operator in made.values():
        for field, each in operator.reads():
            node, dot, output = each.partition(".")
            if node == name:
                _replace(operator, field, each, f"{new}{dot}{output}")
    return made


def outputs(operators: Operators, name: str) -> list[str]:
    """Return how the outputs of an operator are named: one, or those of a split."""
    return [f"{name}.{output}" for output in operators[name].outputs()] or [name]


def takes_input(operator: Operator) -> bool:
    """Whether it reads other operators."""
    return any(field in operator.texts for field in INPUTS)


def _output(operators: Operators, reference: str) -> str:
    named = outputs(operators, reference.partition(".")[0])
    return reference if reference in named else named[0]


def _replace(operator: Operator, field: str, old: str, new: str) -> None:
    listed = [new if each == old else each for key, each in operator.reads() if key == field]
    operator.texts[field] = ", ".join(dict.fromkeys(filter(None, listed)))


def _below(operators: Operators, name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for _, each in operators[waiting.pop()].reads():
            node = each.partition(".")[0]
            if node in operators and node not in found:
                found.add(node)
                waiting.append(node)
    return found
