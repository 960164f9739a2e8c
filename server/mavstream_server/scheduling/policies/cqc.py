"""Continuous query classes: classes share the time by priority, rates decide inside each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mavstream_server.scheduling.bases.class_level import ClassLevelPolicy
from mavstream_server.scheduling.bases.sources_last import InnerWithSources
from mavstream_server.scheduling.mechanisms.credit import Account
from mavstream_server.scheduling.policy import PolicyOptions, SourceService
from mavstream_server.scheduling.registry import InnerPolicy, register
from mavstream_server.scheduling.view import Report, Slice, View


class QueryClassOptions(PolicyOptions):
    """How long a round is, how finely it is cut, and what decides inside a class."""

    period_us: Annotated[int, Field(gt=0)] = 10_000
    """The period k that the classes share. The paper's is 1000, for operators that take tuples one by one;
    here they take batches, and the lowest of classes 6:3:1 should have time for a few in its 1 ms."""
    step_3b: Literal["intent", "literal"] = "intent"
    """What a class that ran tu > c starts its next turn with: T - (tu - c), or as printed T - (tu - T)."""
    train: Annotated[int, Field(gt=0)] | None = 4096
    """Most tuples per operator between two looks at the credit; without a bound all that wait."""
    inner: InnerWithSources = Field(default_factory=lambda: InnerWithSources(policy="hr"))
    """What decides inside a class."""


@register
class QueryClasses(ClassLevelPolicy[QueryClassOptions]):
    """CQC paper, Algorithm 1: weighted round robin with negative credit, T_i = k P_i / sum of P_j.

    A class runs until its credit is used up or nothing of it is ready; what it used too much, it owes to the
    next rounds, what it did not use is lost. Rounds in which all who are ready only pay debts take no time,
    and when nothing is ready at all, debts are over and the next round begins with the highest class. Step 3b
    is read as the text means it (`step_3b`). Good for isolation of important classes on one core: no class
    starves, though queries inside one may, as its inner policy has it. A class waits for a whole round.
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
        self._ring: list[Account] = []  # the most important class first
        self._at = 0  # whose turn it is or comes next
        self._begun = False  # whether that turn has begun

    @property
    def inner(self) -> InnerPolicy:
        """What decides inside a class."""
        return self.options.inner

    @property
    def accounts(self) -> list[Account]:
        """The classes' accounts, the most important class first."""
        return self._ring

    def classes_changed(self) -> None:
        """Share the period anew; who has the turn keeps it, and debts stay."""
        current = self._ring[self._at].class_name if self._ring else ""
        names, known, literal = self.classes, self._accounts, self.options.step_3b == "literal"
        self._accounts = {name: known.get(name) or Account(name, literal) for name in names}
        self._ring = list(self._accounts.values())
        period, total = self.options.period_us * 1000, sum(map(self.priority, names))
        for name, account in self._accounts.items():
            account.grant(max(period * self.priority(name) // max(total, 1), 1))
        if current not in self._accounts:
            self._at, self._begun = self._at if self._at < len(names) else 0, False
        elif self._at or self._begun:  # else a round is about to begin, with whoever is first now
            self._at = names.index(current)

    def next(self, core: int, now: int) -> Slice | None:
        """Return a slice of the class whose turn it is, going around until one has something ready."""
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
        """After a round in which nobody ran: go on to where the first of those in debt may."""
        awake = self._awake
        rounds = min((a.rounds_to_wait() for a in self._ring if a.class_name in awake), default=0)
        for account in self._ring:
            account.pay_off(rounds)

    def charge(self, class_name: str, slice_: Slice, report: Report) -> None:
        """Take the time of a slice from the credit of the class that it came from."""
        account = self._accounts.get(class_name)
        if account is not None:
            account.charge(report.elapsed)
