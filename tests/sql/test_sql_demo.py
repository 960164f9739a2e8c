"""The page of the demo's queries shows what the code has: SQL and plans that say the same."""

from __future__ import annotations

import json

from tests.support.documents import blocks
from tests.support.sql.demo_page import CATALOG, PAGE, demo_page
from tests.support.sql.same_plans import canonical

from mavstream_feeder.demo.queries import CLASSES
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.sql import parse_select


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == demo_page(), "run python -m tests.support.sql.demo_page"


def test_each_sql_on_the_page_becomes_the_plan_of_the_demo() -> None:
    queries, plans = blocks(PAGE, "sql"), blocks(PAGE, "json")
    flows = [flow for one in CLASSES for flow in one.queries.values()]
    assert len(queries) == len(plans) == len(flows) == 21
    for sql, plan, flow in zip(queries, plans, flows, strict=True):
        expected = canonical(flow.build(), CATALOG)
        assert canonical(parse_select(sql, CATALOG), CATALOG) == expected
        assert canonical(Plan.parse(json.loads(plan)), CATALOG) == expected
