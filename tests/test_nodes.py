"""No code outside the node classes and the registries checks node types, and every registry has all nodes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.differential.coverage import KINDS

from mavstream._plans import builder
from mavstream_protocol import typed_plan
from mavstream_protocol.plans import inference, plan
from mavstream_protocol.plans.plan import NODES, OPERATORS, PlanNode
from mavstream_protocol.plans.windows import TimeWindow
from mavstream_protocol.sql.writer.plans import WRITERS
from mavstream_protocol.typed_plan import TypedNode, TypedSource
from mavstream_server.operators.windows.index import WindowIndex
from mavstream_server.planning.instantiator import MAKERS
from mavstream_server.planning.rewriting import matching
from mavstream_server.planning.rewriting.costing.operators import COSTINGS
from mavstream_spark.plans.compiler import FRAMES

ROOT = Path(__file__).parent.parent
TYPED = [kind for kind in vars(typed_plan).values() if inspect.isclass(kind) and issubclass(kind, TypedNode)]
TYPED.remove(TypedNode)
CLASSES = {kind.__name__ for kind in (*NODES, PlanNode, *TYPED, TypedNode)}
FIELDS = {name for kind in (*NODES, *TYPED) for name in inspect.get_annotations(kind)} - {"op"}


def file_of(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__)


# Modules that may check node types: the node classes, type inference, and the matching that rules about
# certain operators use.
ALLOWED = {
    file_of(plan),
    file_of(inference),
    file_of(matching),
    *file_of(typed_plan).parent.glob("*.py"),
}


def names(node: ast.AST) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def asks_for_class(node: ast.AST) -> bool:
    """Whether a piece of code checks the class of a node."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            return bool(names(kinds) & CLASSES)
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(field)), *_]):
            return field in FIELDS
        case ast.MatchClass(cls=kind):
            return bool(names(kind) & CLASSES)
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=others):
            return any(names(other) & CLASSES for other in others)
    return False


def sites(path: Path) -> Iterator[int]:
    yield from (node.lineno for node in ast.walk(ast.parse(path.read_text())) if asks_for_class(node))


def sources() -> list[Path]:
    found = [path for package in ROOT.glob("*/mavstream*") for path in package.rglob("*.py")]
    return sorted({*found, *(ROOT / "bench").rglob("*.py")} - ALLOWED)


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(node, TypedSelect)",
        "isinstance(node, TypedSelect | TypedProject)",
        "isinstance(node, plan.SplitNode)",
        "type(node) is TypedUnion",
        "getattr(node, 'window', None)",
        "match node:\n    case TypedAggregate(scaled=True): pass",
    ],
)
def test_type_checks_on_nodes_are_recognised(code: str) -> None:
    assert any(asks_for_class(node) for node in ast.walk(ast.parse(code)))


def test_no_code_checks_the_class_of_a_node() -> None:
    assert len(sources()) > 400
    found = [f"{path.relative_to(ROOT)}:{line}" for path in sources() for line in sites(path)]
    assert found == []


ANSWERS = sorted(TypedNode.__abstractmethods__ - {"op"})


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_typed_node_without_an_abstract_method_cannot_be_defined(answer: str) -> None:
    body = {name: None for name in (*ANSWERS, "op") if name != answer}
    with pytest.raises(TypeError, match=f"TypedNew does not answer {answer}"):
        type("TypedNew", (TypedNode,), body)


def test_a_plan_node_must_name_its_input_fields() -> None:
    with pytest.raises(TypeError, match="NewNode must name in `input_fields`"):
        type("NewNode", (PlanNode,), {})


@pytest.mark.parametrize("kind", NODES, ids=lambda kind: kind.__name__)
def test_every_input_field_of_a_node_is_declared(kind: type[PlanNode]) -> None:
    fields = kind.model_fields
    assert set(kind.input_fields) == {"input", "inputs", "left", "right"} & set(fields)
    assert kind.table_fields <= set(kind.input_fields)


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_a_typed_node(operator: str) -> None:
    assert operator in {kind.op for kind in TYPED}


@pytest.mark.parametrize("kind", NODES, ids=lambda kind: kind.__name__)
def test_every_node_is_typed_by_inference(kind: type[PlanNode]) -> None:
    assert kind in inference.infer_node.registry


@pytest.mark.parametrize("kind", TYPED, ids=lambda kind: kind.__name__)
def test_no_registry_forgets_a_node(kind: type[TypedNode]) -> None:
    assert kind.op in OPERATORS
    runs = kind.has_operator and kind.runs_as is TypedNode.runs_as
    assert (kind in FRAMES) == runs, "the Spark compiler"
    above = kind is not TypedSource  # these need a cursor, and cost the same in all plans
    assert (kind in MAKERS) == (runs and above), "the instantiator"
    assert (kind in COSTINGS) == (kind.has_operator and above), "costing"


def test_every_costing_has_a_kind_of_its_own() -> None:
    kinds = [costing.kind for costing in COSTINGS.values()]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("hop", [None, "3us", "7us", "20us"])
@pytest.mark.parametrize(("begin", "until"), [(None, None), (5, None), (None, 40), (-7, 33)])
def test_the_last_window_end_of_a_time_is_the_one_of_the_engine(
    hop: str | None, begin: int | None, until: int | None
) -> None:
    kind = "tumbling" if hop is None else "hopping"
    window = TimeWindow(kind=kind, size="7us", hop=hop, begin=begin, until=until)
    index = WindowIndex(window)
    for time in range(-30, 60):
        assert window.last_end(time) == index.end(index.first_behind(time) - 1)


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_can_be_built_with_the_sdk(operator: str) -> None:
    calls = [node for node in ast.walk(ast.parse(file_of(builder).read_text())) if _builds(node)]
    assert operator in {call.args[0].value for call in calls}


def _builds(node: ast.AST) -> bool:
    """Whether a piece of the builder makes a node of a literal operator."""
    match node:
        case ast.Call(func=ast.Attribute(attr="_then") | ast.Name(id="_node_of"), args=[ast.Constant(), *_]):
            return True
    return False


@pytest.mark.parametrize("kind", NODES, ids=lambda kind: kind.__name__)
def test_every_operator_can_be_written_as_sql(kind: type[PlanNode]) -> None:
    assert kind in WRITERS


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_documented(operator: str) -> None:
    assert f"\n| `{operator}` |" in (ROOT / "docs" / "operators.md").read_text()


@pytest.mark.parametrize("operator", sorted({*OPERATORS} - {"table"}))
def test_every_operator_is_held_against_duckdb(operator: str) -> None:
    assert any(kind.split()[0] == operator for kind in KINDS)
