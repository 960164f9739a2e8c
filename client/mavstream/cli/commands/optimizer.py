"""`mavstream optimizer`: settings and decisions of the run-time optimizer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mavstream.cli.display.output import show_fields, show_json, show_list, show_table
from mavstream.cli.display.readable import clock
from mavstream.cli.session import Output, OutputOption, client_of
from mavstream_protocol import format_duration
from mavstream_protocol.admission import AdmissionPolicy
from mavstream_protocol.optimizer import PolicyChoice
from mavstream_protocol.specification import Metric, Quantifier
from mavstream_protocol.wire.optimizer import OptimizerInfo

app = typer.Typer(no_args_is_help=True, help="Watch QoS targets and the actions taken to keep them.")

_ON = {"on": True, "off": False}


@app.command("show")
def show(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show the settings, the actions in force, and the status of targets."""
    with client_of(context) as client:
        _show(client.optimizer(), output)


@app.command("set")
def set_optimizer(
    context: typer.Context,
    enabled: Annotated[bool | None, typer.Option("--on/--off", help="Whether the optimizer acts.")] = None,
    period: Annotated[str | None, typer.Option(help="How often it checks targets, such as 1s.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="NAME=on|off", help="Enable or disable a rule.")
    ] = None,
    prefer: Annotated[
        PolicyChoice | None,
        typer.Option(help="How the rule `policy` chooses: from a table, or by AMoS first."),
    ] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(
            "--goal",
            metavar="METRIC=WEIGHT",
            help="What AMoS ranks policies by, such as delay=0.7.",
        ),
    ] = None,
    admission: Annotated[
        AdmissionPolicy | None, typer.Option(help="What to do about new queries that do not fit in.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change settings; those that are not given stay."""
    given = {"enabled": enabled, "period": period, "policy_choice": prefer, "admission": admission}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if goal:
        changes["specification"] = {"requirements": [_read_goal(text) for text in goal]}
    with client_of(context) as client:
        if rule:
            changes["rules"] = {**client.optimizer().settings.rules, **dict(map(_read_rule, rule))}
        _show(client.set_optimizer(**changes), output)


@app.command("decisions")
def decisions(
    context: typer.Context,
    query: Annotated[str | None, typer.Option(help="Only decisions that concern this query.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List decisions with their reasons and outcomes, newest first."""
    with client_of(context) as client:
        found = client.decisions(query)
    show_list(
        found,
        output,
        ["at", "rule", "what", "why", "outcome", "missed before", "after"],
        lambda one: (clock(one.at), one.rule, one.what, one.why, one.outcome, one.before, one.after),
    )


def _read_rule(text: str) -> tuple[str, bool]:
    name, _, state = text.partition("=")
    if state not in _ON:
        raise typer.BadParameter(f"'{text}' is not NAME=on or NAME=off", param_hint="--rule")
    return name, _ON[state]


def _read_goal(text: str) -> dict[str, Any]:
    metric, _, weight = text.partition("=")
    try:
        more = Metric(metric) is Metric.OUTPUT_RATE
        direction = Quantifier.MAXIMISE if more else Quantifier.MINIMISE
        return {"metric": metric, "quantifier": direction.value, "weight": float(weight)}
    except ValueError:
        known = ", ".join(Metric)
        raise typer.BadParameter(
            f"'{text}' is not METRIC=WEIGHT with one of the metrics {known}", param_hint="--goal"
        ) from None


def _show(info: OptimizerInfo, output: Output) -> None:
    if output is Output.JSON:
        show_json(info)
        return
    settings, trial = info.settings, info.probation
    show_fields(
        [
            ("acts", settings.enabled),
            ("period", format_duration(settings.period)),
            ("policy", info.policy),
            ("on probation", None if trial is None else f"{trial.what}, since {trial.at}"),
            ("shed", info.shed),
            ("weights", info.weights),
            ("decisions", info.decisions),
        ]
    )
    show_table(["rule", "on", "about"], [(one.name, one.enabled, one.about) for one in info.rules])
    states = ("kept", "at risk", "missed", "unknown")
    rows = [(name, *(counts.get(state, 0) for state in states)) for name, counts in info.targets.items()]
    show_table(["targets of class", *states], rows)
