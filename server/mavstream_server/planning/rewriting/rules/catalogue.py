"""The catalogue of rewrite rules, in the order in which they are applied."""

from __future__ import annotations

from mavstream_server.planning.rewriting.rule import RewriteRule
from mavstream_server.planning.rewriting.rules import (
    condition_below_join,
    drop_columns,
    join_order,
    merge_projects,
    merge_selects,
    order_selects,
    select_below_join,
    select_below_node,
    select_below_split,
    select_below_union,
    split_select,
)

RULES: tuple[RewriteRule, ...] = (
    select_below_node.RULE,
    select_below_join.RULE,
    condition_below_join.RULE,
    select_below_union.RULE,
    select_below_split.RULE,
    split_select.RULE,
    order_selects.RULE,
    join_order.RULE,
    drop_columns.RULE,
    merge_projects.RULE,
    merge_selects.RULE,
)
"""All rules; a search may use fewer."""
