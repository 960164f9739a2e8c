"""Options that are accepted before and behind every sub-command: the server, its token, the output format."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

SERVER = ("url", "token", "token_file", "timeout")
"""Options of the root that say which server to talk to, and how."""
OUTPUT = "output"
_JSON_FLAGS = ("json_", "json")
_PANEL = "Server"


def share(command: Any, context: Any, talks: bool) -> None:
    """Give a sub-command, and all below it, the options of the root command that they have not.

    What stands before the sub-command is the default of what may stand behind it. Options of the server are
    added where the sub-command `talks` to one.
    """
    options = {option.name: option for option in context.command.params}
    for part in _walk(command):
        own = {option.name for option in part.params}
        for name in SERVER:
            if name in own:
                if _given(context, name):
                    _set_default(part, name, context.params[name])
            elif talks:
                part.params.append(_copied(options[name], context.params[name], _store))
        if OUTPUT not in own and (hasattr(part, "commands") or own.intersection(_JSON_FLAGS)):
            part.params.append(_copied(options[OUTPUT], None, _store_output))
    if context.params[OUTPUT] is not None:
        _choose_output(command, context.params[OUTPUT])


def _walk(command: Any) -> Iterator[Any]:
    yield command
    for part in getattr(command, "commands", {}).values():
        yield from _walk(part)


def _copied(option: Any, default: Any, callback: Any) -> Any:
    """Return an option of the root for another command; the environment was read for the root."""
    copied = copy.copy(option)
    copied.default, copied.callback = default, callback
    copied.envvar, copied.expose_value, copied.is_eager = None, False, True
    if option.name in SERVER:
        copied.rich_help_panel = _PANEL
    return copied


def _given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _store(context: Any, option: Any, value: Any) -> Any:
    if _given(context, option.name):
        context.find_root().obj.choose(**{option.name: value})
    return value


def _store_output(context: Any, option: Any, value: Any) -> Any:
    if value is not None:
        _choose_output(context.command, value)
    return value


def _choose_output(command: Any, value: Any) -> None:
    for part in _walk(command):
        _set_default(part, OUTPUT, value)
        for name in _JSON_FLAGS:
            _set_default(part, name, value == "json")


def _set_default(command: Any, name: str, value: Any) -> None:
    for option in command.params:
        # A copy of the root's has no value of its own.
        if option.name == name and option.expose_value:
            # What was given on the command line precedes the environment.
            option.default, option.envvar = value, None
