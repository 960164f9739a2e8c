"""Arithmetic in workload files: text such as `=300 * n` is evaluated with the parameters."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_MARK = "="
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


class ArithmeticFault(Exception):
    """A formula that cannot be evaluated."""


def evaluate(formula: str, parameters: Mapping[str, float]) -> float:
    """Evaluate a formula of numbers, parameters, + - * / // and brackets; raises ArithmeticFault."""
    try:
        return _value(ast.parse(formula.strip(), mode="eval").body, parameters)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ArithmeticFault(f"{formula!r} cannot be evaluated: {error}") from None


def resolve(data: Any, parameters: Mapping[str, float], path: tuple[str, ...] = ()) -> Any:
    """Return data with all formulas evaluated; errors name the path."""
    if isinstance(data, dict):
        return {key: resolve(value, parameters, (*path, str(key))) for key, value in data.items()}
    if isinstance(data, list):
        return [resolve(value, parameters, (*path, str(index))) for index, value in enumerate(data)]
    if isinstance(data, str) and data.startswith(_MARK):
        try:
            return _plain(evaluate(data[len(_MARK) :], parameters))
        except ArithmeticFault as fault:
            raise ArithmeticFault(f"{'/'.join(path)}: {fault}") from None
    return data


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _value(node: ast.expr, parameters: Mapping[str, float]) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, parameters)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _value(node.left, parameters), _value(node.right, parameters)
        return _OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.Name):
        if node.id not in parameters:
            known = ", ".join(parameters) or "none"
            raise ArithmeticFault(f"unknown parameter {node.id!r}; known are: {known}")
        return parameters[node.id]
    raise ArithmeticFault(f"{ast.unparse(node)!r} is not arithmetic; use numbers, parameters, + - * / //")
