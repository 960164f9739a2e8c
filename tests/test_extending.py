"""The recipes of docs/extending.md, carried out in a copy of the sources, pass the tests that they name."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"
PACKAGES = ("protocol", "client", "server", "feeder", "spark", "experiments")
COPIED = (*PACKAGES, "attack", "bench", "docs", "tests", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "*.png", "*.parquet", "*.egg-info")

_FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIDES = {"before": (0, 0), "after": (1, 1), "instead": (0, 1)}
"""What a block replaces, starting with the named line."""


class BrokenStep(AssertionError):
    """A step of a recipe that does not fit the sources."""


@dataclass(frozen=True)
class Step:
    """A block of the page: a file to write, lines to insert, tests to run, a program, or its output.

    The words after the language say which: `new=path`; `edit=path` with `before=`, `after=` or `instead=` a
    line; `test`; `run`. `breaks=tests` names tests that fail after a change, since others must follow;
    `meets=kind` a kind of plans that the comparison with DuckDB must have counted.
    """

    language: str
    words: tuple[str, ...]
    text: str
    ahead: str = ""
    """The text of the page between this block and the one before it."""

    @property
    def options(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.words if "=" in word)

    @property
    def path(self) -> str | None:
        """The file that it changes."""
        return self.options.get("new") or self.options.get("edit")

    def apply(self, root: Path) -> None:
        """Change the file below a directory; raises BrokenStep."""
        assert self.path is not None
        path = root / self.path
        if "new" in self.options:
            if path.exists():
                raise BrokenStep(f"{self.path}: a new file of the recipe exists already")
            path.write_text(self.text)
            return
        if not path.exists():
            raise BrokenStep(f"{self.path}: the file to edit does not exist")
        (side,) = self.options.keys() & set(SIDES)
        anchor, lines = self.options[side], path.read_text().splitlines(keepends=True)
        found = [number for number, line in enumerate(lines) if anchor in (line.strip(), line.rstrip())]
        if len(found) != 1:
            raise BrokenStep(f"{self.path}: expected the line {anchor!r} once, found it {len(found)} times")
        begin, end = (found[0] + offset for offset in SIDES[side])
        lines[begin:end] = [self.text]
        path.write_text("".join(lines))


@dataclass(frozen=True)
class Recipe:
    """A section of the page."""

    title: str
    steps: tuple[Step, ...]

    @property
    def changes(self) -> list[Step]:
        return [step for step in self.steps if step.path is not None]

    @property
    def tests(self) -> list[Step]:
        return [step for step in self.steps if "test" in step.words]

    @property
    def example(self) -> tuple[str, str]:
        """The program at the end, and its output."""
        program, shown = self.steps[-2:]
        assert (program.words, shown.language) == (("run",), "text"), f"{self.title}: no example at the end"
        return program.text, shown.text


def read_recipes(page: str) -> list[Recipe]:
    """Return the sections of a page that have steps."""
    recipes = []
    for section in page.split("\n## ")[1:]:
        steps, end = [], 0
        for found in _FENCE.finditer(section):
            language, info, text = found.groups(default="")
            steps.append(Step(language, tuple(shlex.split(info)), text, section[end : found.start()]))
            end = found.end()
        recipes.append(Recipe(section.partition("\n")[0], tuple(steps)))
    return recipes


RECIPES = read_recipes(PAGE.read_text())


@dataclass
class Copy:
    """Sources in a directory of their own, which programs import instead of the installed ones."""

    root: Path
    environment: dict[str, str] = field(init=False)
    _before: dict[Path, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.root / name, ignore=LEFT_OUT)
            else:
                shutil.copy(ROOT / name, self.root / name)
        known = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        paths = os.pathsep.join(str(self.root / name) for name in PACKAGES)
        # Of the plugins only xdist is needed, for options in pyproject.toml; the others take long to import.
        self.environment = {**known, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def apply(self, step: Step) -> None:
        """Make a change and remember the file's old content."""
        assert step.path is not None
        path = self.root / step.path
        self._before.setdefault(path, path.read_text() if path.exists() else None)
        step.apply(self.root)

    def restore(self) -> None:
        """Undo all changes."""
        for path, text in self._before.items():
            path.unlink() if text is None else path.write_text(text)
        self._before.clear()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def run_tests(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run tests in the copy."""
        options = ("-p", "xdist.plugin", "-n0", "-p", "no:cacheprovider", "--tb=short")
        return self.run("-m", "pytest", *options, *words)

    def failing(self, tests: Sequence[str]) -> set[str]:
        """Return those of the tests that fail for any of their parameters."""
        done = self.run_tests(["-rf", "--tb=no", *tests])
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return set(re.findall(r"^FAILED ([^\s\[]+)", done.stdout, re.MULTILINE))


@dataclass
class Applied:
    """A recipe that was carried out."""

    recipe: Recipe
    copy: Copy
    failed: dict[str, bool]
    """Whether the tests in `breaks=` failed after their change."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Sources that all recipes share, one after the other: compiling a copy for each would take long."""
    return Copy(tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module", params=RECIPES, ids=lambda recipe: recipe.title)
def applied(request: pytest.FixtureRequest, copy: Copy) -> Iterator[Applied]:
    recipe: Recipe = request.param
    failed: dict[str, bool] = {}
    for step in recipe.changes:
        copy.apply(step)
        if broken := step.options.get("breaks", "").split():
            failing = copy.failing(broken)
            failed |= {test: test in failing for test in broken}
    yield Applied(recipe, copy, failed)
    copy.restore()


def test_programs_import_the_copied_sources(copy: Copy) -> None:
    names = ["mavstream", "mavstream_protocol", "mavstream_server", "mavstream_spark"]
    done = copy.run("-c", f"import {', '.join(names)} as s; print({', '.join(names[:-1])}, s)")
    assert done.stderr == ""
    assert done.stdout.count(str(copy.root)) == len(names)


def test_the_example_prints_the_shown_output(applied: Applied) -> None:
    program, shown = applied.recipe.example
    done = applied.copy.run("-W", "error", "-c", program)
    assert done.stderr == ""
    assert done.stdout == shown


def test_the_tests_that_a_recipe_says_it_breaks_fail(applied: Applied) -> None:
    assert [test for test, failed in applied.failed.items() if not failed] == []


def test_the_tests_that_a_recipe_names_pass(applied: Applied) -> None:
    assert applied.recipe.tests
    for step in applied.recipe.tests:
        printed = ""
        for command in step.text.splitlines():
            program, *words = shlex.split(command)
            assert program == "pytest"
            done = applied.copy.run_tests(["-s", *words])
            assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
            printed += done.stdout
        if met := step.options.get("meets"):
            counts = re.findall(rf"^  {re.escape(met)}.* (\d+)$", printed, re.MULTILINE)
            assert any(map(int, counts)), f"no case with {met} was run: name others"


def test_files_of_a_recipe_pass_ruff(applied: Applied) -> None:
    changed = {path for step in applied.recipe.changes if (path := step.path or "").endswith(".py")}
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = applied.copy.run("-m", "ruff", *command, *sorted(changed))
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_a_recipe_for_each_extension() -> None:
    assert [recipe.title for recipe in RECIPES] == ["A policy", "An operator", "An aggregate", "A route"]


def test_the_text_ahead_of_a_block_names_its_file() -> None:
    known = {"new", "edit", "breaks", "meets", *SIDES}
    for recipe in RECIPES:
        for step in recipe.steps:
            assert set(step.options) <= known, f"{recipe.title}: {step.words}"
            assert step.path is None or f"`{step.path}`" in step.ahead, f"{recipe.title}: {step.words}"


# Errors of recipes


def step(info: str, text: str = "new\n") -> Step:
    ((language, info, text),) = _FENCE.findall(f"```{info}\n{text}```\n")
    return Step(language, tuple(shlex.split(info)), text)


@pytest.mark.parametrize(
    ("side", "result"),
    [
        ("before", "one\nnew\n  two\nthree\n"),
        ("after", "one\n  two\nnew\nthree\n"),
        ("instead", "one\nnew\nthree\n"),
    ],
)
def test_lines_are_inserted_where_the_block_says(side: str, result: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n  two\nthree\n")
    step(f"python edit=a.py {side}=two").apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == result


@pytest.mark.parametrize(("content", "count"), [("one\n", 0), ("two words\ntwo words\n", 2)])
def test_a_line_that_does_not_occur_exactly_once_is_named(content: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(content)
    with pytest.raises(
        BrokenStep, match=rf"a\.py: expected the line 'two words' once, found it {count} times"
    ):
        step('python edit=a.py after="two words"').apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == content


def test_new_files_must_not_exist_and_edited_files_must(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    with pytest.raises(BrokenStep, match=r"a\.py: a new file of the recipe exists already"):
        step("python new=a.py").apply(tmp_path)
    with pytest.raises(BrokenStep, match=r"b\.py: the file to edit does not exist"):
        step("python edit=b.py after=one").apply(tmp_path)
