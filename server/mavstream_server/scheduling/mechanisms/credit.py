"""Credit: how long a class may still run, and what it owes for having run too long."""

from __future__ import annotations


class Account:
    """The quota of one class in weighted round robin with negative credit (CQC paper, Algorithm 1).

    A turn begins with `begin`, is paid for with `charge` and ends with `leave`. Nanoseconds throughout.
    """

    __slots__ = ("class_name", "credit", "literal", "running", "share", "spent", "turn")

    def __init__(self, class_name: str, literal: bool = False) -> None:
        self.class_name = class_name
        self.literal = literal
        """Whether step 3b is taken as it is printed."""
        self.share = 0
        """T: what a round gives."""
        self.credit = 0
        """c: what the class may use in this turn; what it owes if negative."""
        self.spent = 0
        """tu: what it has used of it."""
        self.turn = False
        """Whether a turn has begun that is not settled yet."""
        self.running = 0
        """Slices of the class that are being run."""

    def grant(self, share: int) -> None:
        """Give another share per round, from now on; debts stay, and what was used by right makes none."""
        credit = self.credit + share - self.share
        self.credit = max(credit, min(self.credit, self.spent)) if self.turn else credit
        self.share = share

    def begin(self) -> bool:
        """Begin a turn (step 2); False if the class is in debt, of which this round pays a share."""
        if self.turn:  # left while slices of it were still being run on other cores
            if self.running and self.spent < self.credit:
                return True
            self._settle()
        if self.credit <= 0:
            self.credit += self.share
            return False
        self.turn = True
        return True

    def charge(self, elapsed: int) -> None:
        """Account for a slice; work that costs nothing is charged too, or its turn would never end."""
        self.running = max(self.running - 1, 0)
        if self.turn:
            self.spent += max(elapsed, 1)
        else:
            self.credit -= elapsed

    def leave(self) -> None:
        """End the turn (step 3), or leave that to the next `begin` if slices are still being run."""
        if not self.running:
            self._settle()

    def rounds_to_wait(self) -> int:
        """Return how many rounds it takes until the class may run."""
        return 0 if self.turn or self.credit > 0 else -self.credit // self.share + 1

    def pay_off(self, rounds: int) -> None:
        """Let rounds go by in which the class does not run."""
        if not self.turn and self.credit <= 0:
            self.credit = min(self.credit + rounds * self.share, self.share)

    def _settle(self) -> None:
        if self.spent <= self.credit:
            self.credit = self.share
        else:
            limit = self.share if self.literal else self.credit
            self.credit = self.share - (self.spent - limit)
        self.spent = 0
        self.turn = False
