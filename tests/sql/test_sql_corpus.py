"""Statements give the plans, specifications and errors that the corpus shows."""

from __future__ import annotations

import pytest
from tests.support.sql.corpus import CATALOG, CorpusCase, corpus, outcome
from tests.support.sql.same_plans import canonical

from mavstream_protocol.sql import named_sources, parse_select, parse_statement, plan_to_sql
from mavstream_protocol.sql.statements import Explain, SelectRows

CASES = list(corpus())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.topic}: {case.title}")
def test_a_statement_gives_what_the_corpus_shows(case: CorpusCase) -> None:
    assert outcome(case.sql) == case.expected


@pytest.mark.parametrize("topic", sorted({case.topic for case in CASES}))
def test_plans_of_the_corpus_can_be_written_again(topic: str) -> None:
    for case in CASES:
        if case.topic == topic and not case.expected.startswith("error"):
            statement = parse_statement(case.sql, CATALOG)
            if isinstance(statement, SelectRows):
                sql = plan_to_sql(statement.plan, CATALOG)
                again = parse_select(sql, CATALOG)
                assert canonical(again, CATALOG) == canonical(statement.plan, CATALOG), case.title


def test_what_a_statement_reads_is_found_without_planning_it() -> None:
    found = 0
    for case in CASES:
        if not case.expected.startswith("error"):
            statement = parse_statement(case.sql, CATALOG)
            if isinstance(statement, SelectRows | Explain):
                nodes = statement.plan.nodes.values()
                read = {
                    name for node in nodes for key in ("stream", "table") if (name := getattr(node, key, ""))
                }
                assert read <= {name.lower() for name in named_sources(case.sql)}, case.title
                found += 1
    assert found > 100


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 300
    assert len({case.sql for case in CASES}) == len(CASES)
