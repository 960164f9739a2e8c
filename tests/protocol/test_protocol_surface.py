from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType

import pytest

import mavstream_protocol
import mavstream_protocol.tuples

PACKAGES = [mavstream_protocol, mavstream_protocol.tuples]
FULLY_PUBLIC = ["classes", "plans.plan", "errors", "qos", "queries", "schema", "streams"]


def public_names(module: ModuleType) -> set[str]:
    for name in dir(module):  # which are imported when they are first used
        getattr(module, name)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_list_of_public_names_matches_the_package(package: ModuleType) -> None:
    assert public_names(package) == set(package.__all__)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_no_public_name_is_listed_twice(package: ModuleType) -> None:
    assert len(package.__all__) == len(set(package.__all__))


@pytest.mark.parametrize("name", FULLY_PUBLIC)
def test_every_class_of_a_public_module_is_listed(name: str) -> None:
    module = import_module(f"mavstream_protocol.{name}")
    classes = {
        found
        for found, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__ == module.__name__
    }
    assert classes <= set(mavstream_protocol.__all__)


def test_every_listed_name_has_a_docstring_if_it_can() -> None:
    undocumented = [
        name
        for name in mavstream_protocol.__all__
        if (inspect.isclass(value := getattr(mavstream_protocol, name)) or inspect.isfunction(value))
        and not value.__doc__
    ]
    assert undocumented == []
