"""The tutorial and the cookbook run as they stand, and print what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.documents import ROOT
from tests.support.page_runs import PageRun


def lines(text: str) -> list[str]:
    """Sorted, since rows of joins have no defined order."""
    return sorted(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.parametrize("name", ["tutorial", "cookbook"])
def test_a_page_prints_the_output_that_it_shows(name: str, tmp_path: Path) -> None:
    compared = 0
    with PageRun(ROOT / "docs" / f"{name}.md", tmp_path) as page:
        for line, printed, shown in page.steps():
            if shown is not None:
                assert lines(printed) == lines(shown), f"{name}.md, line {line}"
                compared += 1
    assert compared >= 6


def test_the_cookbook_has_twenty_recipes() -> None:
    found = re.findall(r"^## (\d+)\. ", (ROOT / "docs" / "cookbook.md").read_text(), re.MULTILINE)
    assert [int(number) for number in found] == list(range(1, 21))
