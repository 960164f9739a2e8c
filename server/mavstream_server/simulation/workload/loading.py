"""Loading of workloads by name or from files, and writing as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mavstream_server.simulation.workload.arithmetic import ArithmeticFault, evaluate, resolve
from mavstream_server.simulation.workload.errors import InvalidWorkload, UnknownWorkload
from mavstream_server.simulation.workload.model import Parameter, Workload

_FOLDER = "files"
_FAMILY = "_n"
"""Suffix of families: `5G_4` is the workload of `5G_n.yaml` in which the parameter n is 4."""
_BASE = "_"
"""Prefix of files that are not workloads themselves but common parts of several."""


def names() -> list[str]:
    """Return the names of the built-in workloads; a family ends in `_n`."""
    return sorted(name for name in _shipped() if not name.startswith(_BASE))


def load(
    name: str | Path,
    parameters: Mapping[str, float] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Workload:
    """Return a workload by its name, or from a file.

    `parameters` sets parameters that the file declares; `overrides` replaces values of the file, key by key.
    Raises UnknownWorkload or InvalidWorkload.
    """
    given, shipped, text = dict(parameters or {}), _shipped(), str(name)
    family = re.fullmatch(r"(.+)_(\d+)", text)
    if text in shipped:
        return parse(text, shipped[text].read_text(encoding="utf-8"), given, overrides)
    if family and family[1] + _FAMILY in shipped:
        file = shipped[family[1] + _FAMILY]
        given = {"n": int(family[2]), **given}
        return parse(text, file.read_text(encoding="utf-8"), given, overrides)
    if Path(name).is_file():
        return parse(text, Path(name).read_text(encoding="utf-8"), given, overrides)
    raise UnknownWorkload(text, names())


def parse(
    file: str,
    text: str,
    parameters: Mapping[str, float] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Workload:
    """Return the workload in a YAML text; `file` is the name used in errors."""
    data = _merged(_extended(file, _mapping(file, text)), overrides or {})
    try:
        values = _values(file, data.get("parameters") or {}, parameters or {})
        resolved = {
            key: part if key == "parameters" else resolve(part, values, (key,)) for key, part in data.items()
        }
        return Workload.model_validate({"name": Path(file).stem, **resolved})
    except ArithmeticFault as fault:
        raise InvalidWorkload.at(file, "", str(fault)) from None
    except ValidationError as error:
        raise InvalidWorkload.of(file, error) from None


def to_yaml(workload: Workload) -> str:
    """Return a workload as YAML, without default values."""
    data = workload.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)


def _mapping(file: str, text: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidWorkload.at(file, "", f"expected YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise InvalidWorkload.at(file, "", f"expected a mapping, got {type(data).__name__}")
    return data


def _extended(file: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return data merged over the file that it extends."""
    base = data.pop("extends", None)
    if base is None:
        return data
    shipped = _shipped()
    if base not in shipped:
        raise InvalidWorkload.at(
            file, "extends", f"expected one of {', '.join(sorted(shipped))}, got {base!r}"
        )
    below = _extended(base, _mapping(base, shipped[base].read_text(encoding="utf-8")))
    notes = [*below.get("fitted", ()), *data.get("fitted", ())]
    return {**_merged(below, data), "fitted": notes}


def _values(file: str, declared: Mapping[str, Any], given: Mapping[str, float]) -> dict[str, float]:
    """Return the values of the parameters: as given, else their defaults."""
    unknown = [name for name in given if name not in declared]
    if unknown:
        known = ", ".join(declared) or "none"
        detail = f"unknown parameters: {', '.join(unknown)}; known are: {known}"
        raise InvalidWorkload.at(file, "parameters", detail)
    values = dict(given)
    left = [name for name in declared if name not in values]
    while left:
        # A default may refer to other parameters, in any order.
        name = next((one for one in left if not _needed(declared[one]) & {*left}), left[0])
        left.remove(name)
        default = _parameter(declared[name]).default
        values[name] = evaluate(default.lstrip("="), values) if isinstance(default, str) else default
    for name, value in values.items():
        least, most = _parameter(declared[name]).least, _parameter(declared[name]).most
        if (least is not None and value < least) or (most is not None and value > most):
            wanted = [f"at least {least:g}"] * (least is not None) + [f"at most {most:g}"] * (
                most is not None
            )
            detail = f"expected {' and '.join(wanted)}, got {value:g}"
            raise InvalidWorkload.at(file, f"parameters/{name}", detail)
    return values


def _parameter(part: Any) -> Parameter:
    return Parameter.model_validate(part if isinstance(part, dict) else {"default": part})


def _needed(part: Any) -> set[str]:
    default = _parameter(part).default
    return set(re.findall(r"[a-z_]\w*", default)) if isinstance(default, str) else set()


def _merged(data: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in overrides.items():
        known = merged.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return merged


def _shipped() -> dict[str, Traversable]:
    folder = files("mavstream_server.simulation.workload") / _FOLDER
    return {file.name.removesuffix(".yaml"): file for file in folder.iterdir() if file.name.endswith(".yaml")}
