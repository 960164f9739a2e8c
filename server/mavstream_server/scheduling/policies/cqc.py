"""Continuous query classes: classes share the time by priority, output rates decide inside a class."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mavstream_server.scheduling.bases.class_level import ClassLevelPolicy
from mavstream_server.scheduling.bases.sources_last import InnerWithSources
from mavstream_server.scheduling.mechanisms.credit import Account
from mavstream_server.scheduling.policy import LONGEST_WAIT, PolicyOptions, SourceService
from mavstream_server.scheduling.registry import InnerPolicy, register
from mavstream_server.scheduling.view import OperatorView, Report, Slice, View

_BEHIND = 5
"""Periods after which a class that always had something to do counts as behind."""


class QueryClassOptions(PolicyOptions):
    """Options of `cqc`: length of a round, longest train, and the inner policy."""

    period_us: Annotated[int, Field(gt=0)] = 10_000
    """The period k that the classes share, in microseconds. 1000 in the paper, whose operators take tuples
    one by one; here they take batches, and the lowest of classes 6:3:1 should have time for a few of them
    in its 1 ms."""
    step_3b: Literal["intent", "literal"] = "intent"
    """Credit of the next turn of a class that ran tu > c: T - (tu - c), or as printed T - (tu - T)."""
    train: Annotated[int, Field(gt=0)] | None = None
    """Most tuples per operator between two checks of the credit; None: all that wait. The trains of sources
    are bounded in time anyway."""
    inner: InnerWithSources = Field(
        default_factory=lambda: InnerWithSources(policy="hr", options={"unit": "query"})
    )
    """The policy inside a class. The paper's `hr` decides for each operator; whole queries take half of the
    time at few tuples per turn."""


@register
class QueryClasses(ClassLevelPolicy[QueryClassOptions]):
    """CQC paper, Algorithm 1: weighted round robin with negative credit, T_i = k P_i / sum of P_j.

    A class runs until its credit is used up or nothing of it is ready; it owes the excess to the next
    rounds, unused credit is lost. Rounds in which all ready classes only pay debts take no time, and when
    nothing is ready at all, debts are cancelled and the next round starts with the highest class. Step 3b is
    applied as the text intends it (`step_3b`). Good for isolation of important classes on one core: no class
    starves, though queries inside a class may, depending on its inner policy. A class may wait for a whole
    round.
    """

    name = "cqc"
    optimises = "response time of important classes, in proportion to priority"
    fair = False  # its default inner policy is not
    sources = SourceService.PER_CLASS
    Options = QueryClassOptions

    def __init__(self, view: View, options: QueryClassOptions) -> None:
        super().__init__(view, options)
        self._train = options.train
        self._accounts: dict[str, Account] = {}
        self._ring: list[Account] = []  # by descending class priority
        self._at = 0  # index of the class whose turn it is or that comes next
        self._begun = False  # whether that turn has started

    @property
    def inner(self) -> InnerPolicy:
        """The policy that decides inside a class."""
        return self.options.inner

    @property
    def accounts(self) -> list[Account]:
        """The accounts of the classes, by descending priority."""
        return self._ring

    def may_wait(self, source: OperatorView) -> int:
        """Return a long time if the class has used up its credit, a period if any class is behind.

        A class with credit would otherwise run as often as rows arrive, however few, and spend on fixed costs
        per turn what a class that is behind needs, be it another one or itself.
        """
        period = self.options.period_us * 1000
        if self._accounts[source.query.class_name].exhausted:
            return LONGEST_WAIT
        return period if self.any_behind(_BEHIND * period) else 0

    def classes_changed(self) -> None:
        """Divide the period again; the class whose turn it is keeps it, and debts stay."""
        current = self._ring[self._at].class_name if self._ring else ""
        names, known, literal = self.classes, self._accounts, self.options.step_3b == "literal"
        self._accounts = {name: known.get(name) or Account(name, literal) for name in names}
        self._ring = list(self._accounts.values())
        period, total = self.options.period_us * 1000, sum(map(self.priority, names))
        for name, account in self._accounts.items():
            account.grant(max(period * self.priority(name) // max(total, 1), 1))
        if current not in self._accounts:
            self._at, self._begun = self._at if self._at < len(names) else 0, False
        elif self._at or self._begun:  # otherwise a round is about to start, with the class that is first now
            self._at = names.index(current)

    def next(self, core: int, now: int) -> Slice | None:
        """Return a slice of the class whose turn it is, or of the next class that has something ready."""
        while self._awake:
            for _ in self._ring:
                account = self._ring[self._at]
                if self._begun or account.begin():
                    slice_ = self._within_credit(account, core, now)
                    if slice_ is not None:
                        self._begun = True
                        return slice_
                    account.leave()
                self._begun = False
                self._at = (self._at + 1) % len(self._ring)
            self._skip_rounds()
        self._at, self._begun = 0, False
        return None

    def _within_credit(self, account: Account, core: int, now: int) -> Slice | None:
        left = account.credit - account.spent
        slice_ = self.ask(account.class_name, core, now) if left > 0 else None
        if slice_ is None:
            return None
        account.running += 1
        operators, tuples, duration = slice_
        train = self._train
        if tuples is None or (train is not None and train < tuples):
            tuples = train
        return Slice(operators, tuples, left if duration is None or left < duration else duration)

    def _skip_rounds(self) -> None:
        """After a round in which no class ran, skip to the round in which the first may run."""
        awake = self._awake
        rounds = min((a.rounds_to_wait() for a in self._ring if a.class_name in awake), default=0)
        for account in self._ring:
            account.pay_off(rounds)

    def charge(self, class_name: str, slice_: Slice, report: Report) -> None:
        """Charge the time of a slice to the class that it came from."""
        account = self._accounts.get(class_name)
        if account is not None:
            account.charge(report.elapsed)
