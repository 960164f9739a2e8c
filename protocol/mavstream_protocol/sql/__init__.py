"""SQL: text to plans and statements, and plans to text; nothing is executed here.

`parse_select` and `parse_statement` read text, `plan_to_sql` writes it. Errors are `InvalidSql`, with line
and column.
"""

from __future__ import annotations

from mavstream_protocol.sql.named_sources import named_sources
from mavstream_protocol.sql.planner.builder import Catalog
from mavstream_protocol.sql.statement_parser import (
    parse_select,
    parse_statement,
    split_statements,
    statement_spans,
)
from mavstream_protocol.sql.statements import Statement
from mavstream_protocol.sql.writer import plan_to_sql

__all__ = [
    "Catalog",
    "Statement",
    "named_sources",
    "parse_select",
    "parse_statement",
    "plan_to_sql",
    "split_statements",
    "statement_spans",
]
