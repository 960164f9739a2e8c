"""The public names of the SDK are complete, and both clients have the same methods."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import mavstream
import mavstream.testing

PAIRS = [
    (mavstream.Client, mavstream.AsyncClient),
    (mavstream.Query, mavstream.AsyncQuery),
    (mavstream.Results, mavstream.AsyncResults),
    (mavstream.Feed, mavstream.AsyncFeed),
]
# Names of equivalent methods of the synchronous and the asynchronous client.
AWAITED = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}


def methods(cls: type) -> dict[str, object]:
    return {
        name: value
        for name, value in vars(cls).items()
        if (callable(value) or isinstance(value, property)) and (not name.startswith("_") or name in AWAITED)
    }


def shape(value: object) -> object:
    if isinstance(value, property):
        return "property"
    assert callable(value)
    parameters = inspect.signature(value).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


def test_the_list_of_public_names_matches_the_package() -> None:
    for name in dir(mavstream):  # which are imported when they are first used
        getattr(mavstream, name)
    held = {name for name, value in vars(mavstream).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert held == set(mavstream.__all__)
    assert len(mavstream.__all__) == len(held)


def test_modules_are_private_or_meant_for_users() -> None:
    folder = Path(mavstream.__file__).parent
    public = {path.stem for path in folder.iterdir() if path.name[0] not in "._" and path.suffix != ".typed"}
    assert public == {"cli", "testing"}
    assert mavstream.testing.__all__ == ["start_server"]


@pytest.mark.parametrize("name", mavstream.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(mavstream, name)
    assert inspect.getdoc(value)
    for member, thing in methods(value).items() if inspect.isclass(value) else ():
        assert member in AWAITED or inspect.getdoc(thing), f"{name}.{member}"


@pytest.mark.parametrize(("blocking", "awaiting"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_clients_have_the_same_methods(blocking: type, awaiting: type) -> None:
    expected = {AWAITED.get(name, name): shape(value) for name, value in methods(blocking).items()}
    found = {name: shape(value) for name, value in vars(awaiting).items() if name in expected}
    assert found == expected
    public = {name for name in vars(awaiting) if name[0] != "_" and name in vars(awaiting)}
    assert public == {name for name in vars(blocking) if name[0] != "_"}


def test_errors_form_one_tree() -> None:
    for name in mavstream.__all__:
        value = getattr(mavstream, name)
        if inspect.isclass(value) and issubclass(value, Exception) and value is not mavstream.GapWarning:
            assert issubclass(value, mavstream.MavstreamError), name
