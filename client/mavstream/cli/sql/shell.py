"""The interactive shell: reads statements until a semicolon, runs them, and goes on after errors."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings

from mavstream._client import Client
from mavstream._errors import SqlError
from mavstream.cli.display.output import complain, show_table
from mavstream.cli.sql.completion import Names
from mavstream.cli.sql.runner import Runner
from mavstream_protocol import InvalidObject, MavstreamError, ReadFrom
from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.sql import statement_spans

_PROMPT = "mavstream> "
_MORE = "       ... "
_WORD = re.compile(r"\w+")
_HELP = r"""
  \d            list streams, tables and queries
  \d NAME       describe one of them
  \ds \dt \dq   list streams, tables, queries
  \dc           list classes
  \from now     let SELECT begin at new rows (the default)
  \from earliest  ... or at the oldest stored rows
  \?            this list
  \q            leave (also Ctrl-D)

Statements end with a semicolon; Enter before it begins a new line. Tab completes words and names.
A SELECT shows rows as they come until Ctrl-C. It runs as a query of its own, which is removed then.
"""
_SHOW = {"ds": "SHOW STREAMS", "dt": "SHOW TABLES", "dq": "SHOW QUERIES", "dc": "SHOW CLASSES"}


class Shell:
    """Reads from the terminal until `\\q` or Ctrl-D."""

    def __init__(self, client: Client, runner: Runner) -> None:
        self._client = client
        self._runner = runner
        self._names = Names(client)
        runner.before_select = self._say_what_is_shown

    def run(self) -> None:
        """Run the shell; raises TransportError if there is no server."""
        info = self._client.info()
        print(f"MavStream {info.version} at {self._client.url}")
        print("End statements with a semicolon; \\? shows help, \\q leaves.")
        session = self._session()
        self._names.refresh()
        while True:
            try:
                text = session.prompt(_PROMPT).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text in ("\\q", "quit", "exit", "quit;", "exit;"):
                return
            if text:
                self._run(text)

    def _session(self) -> Any:
        bindings = KeyBindings()
        bindings.add("enter")(_enter)
        return PromptSession(
            history=FileHistory(str(history_file())),
            completer=WordCompleter(self._names.words, ignore_case=True, pattern=_WORD),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=_MORE,
            key_bindings=bindings,
        )

    def _run(self, text: str) -> None:
        try:
            if text.startswith("\\"):
                self._command(*text[1:].rstrip(";").split())
            else:
                self._runner.run(text)
        except KeyboardInterrupt:
            print()
        except SqlError as error:
            complain(str(error))
        except InvalidObject as error:
            complain(error.title, error.items)
        except MavstreamError as error:
            complain(str(error))
        self._names.refresh()

    def _command(self, name: str = "?", argument: str | None = None, *more: str) -> None:
        if name == "d" and argument is None:
            self._list()
        elif name == "d":
            self._runner.run(f"DESCRIBE {argument}")
        elif name in _SHOW:
            self._runner.run(_SHOW[name])
        elif name == "from" and argument in set(ReadFrom):
            self._runner.from_ = ReadFrom(argument)
            print(f"SELECT begins at {'new rows' if argument == ReadFrom.NOW else 'the oldest stored rows'}")
        elif name == "?":
            print(_HELP)
        else:
            complain(f"\\{name} is no command of the shell: \\? lists them")

    def _say_what_is_shown(self) -> None:
        if self._runner.from_ is ReadFrom.NOW:
            print("new rows as they come, \\from earliest shows stored ones, too; Ctrl-C ends it")
        else:
            print("stored rows, and new ones as they come; Ctrl-C ends it")

    def _list(self) -> None:
        """List all streams, tables and queries."""
        client = self._client
        rows = [("stream", one.name, f"{one.position} rows") for one in client.streams()]
        rows += [("table", one.name, f"{one.rows} rows, version {one.version}") for one in client.tables()]
        rows += [("query", one.spec.name, f"{one.state}, {one.results} results") for one in client.queries()]
        show_table(["kind", "name", ""], rows)


def history_file() -> Path:
    """Return the file of the history in the user's state directory, which is created."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(base) / "mavstream"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / "sql_history"


def is_complete(text: str) -> bool:
    """Return whether Enter runs a text: a command of the shell, nothing, or statements up to a semicolon."""
    text = text.strip()
    if not text or text.startswith("\\") or text in ("quit", "exit"):
        return True
    if not text.endswith(";"):
        return False
    try:
        spans = list(statement_spans(text))
    except InvalidSql:
        # A text or comment that does not end goes on in the next line; other errors are shown.
        return text.count("'") % 2 == 0 and text.count('"') % 2 == 0 and text.count("/*") == text.count("*/")
    return not spans or spans[-1][1] < len(text)


def _enter(event: Any) -> None:
    """Run what was typed if it is complete, else begin a new line."""
    buffer = event.current_buffer
    if is_complete(buffer.text):
        buffer.validate_and_handle()
    else:
        buffer.newline()
