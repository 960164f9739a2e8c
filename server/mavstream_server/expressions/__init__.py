"""Expressions over columns: typed expressions compiled to numpy."""

from mavstream_server.expressions.compiler import Predicate, compile_expression, compile_predicate
from mavstream_server.expressions.errors import RowErrors
from mavstream_server.expressions.operands import Evaluator

__all__ = ["Evaluator", "Predicate", "RowErrors", "compile_expression", "compile_predicate"]
