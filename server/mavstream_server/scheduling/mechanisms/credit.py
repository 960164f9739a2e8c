"""Credit accounts: how long a class may still run in a round, and its debt for running too long."""

from __future__ import annotations


class Account:
    """Quota of one class in weighted round robin with negative credit (CQC paper, Algorithm 1).

    A turn starts with `begin`, is charged with `charge` and ends with `leave`. All times in nanoseconds.
    """

    __slots__ = ("class_name", "credit", "literal", "running", "share", "spent", "turn")

    def __init__(self, class_name: str, literal: bool = False) -> None:
        self.class_name = class_name
        self.literal = literal
        """Whether step 3b is applied as printed."""
        self.share = 0
        """T: credit granted per round."""
        self.credit = 0
        """c: time that the class may use in this turn; its debt if negative."""
        self.spent = 0
        """tu: time used in this turn."""
        self.turn = False
        """Whether a turn has started and is not settled yet."""
        self.running = 0
        """Running slices of the class."""

    def grant(self, share: int) -> None:
        """Change the share per round; debts stay, and time already used within the credit adds no debt."""
        credit = self.credit + share - self.share
        self.credit = max(credit, min(self.credit, self.spent)) if self.turn else credit
        self.share = share

    def begin(self) -> bool:
        """Start a turn (step 2); return False if the class is in debt, which is then reduced by a share."""
        if self.turn:  # left while slices of the class were still running on other cores
            if self.running and self.spent < self.credit:
                return True
            self._settle()
        if self.credit <= 0:
            self.credit += self.share
            return False
        self.turn = True
        return True

    def charge(self, elapsed: int) -> None:
        """Account for a slice; at least 1 ns is charged, or a turn of free work would never end."""
        self.running = max(self.running - 1, 0)
        if self.turn:
            self.spent += max(elapsed, 1)
        else:
            self.credit -= elapsed

    def leave(self) -> None:
        """End the turn (step 3), or leave that to the next `begin` if slices are still running."""
        if not self.running:
            self._settle()

    @property
    def exhausted(self) -> bool:
        """Whether the class cannot run before the next round."""
        return self.credit <= self.spent

    def rounds_to_wait(self) -> int:
        """Return the number of rounds until the class may run."""
        return 0 if self.turn or self.credit > 0 else -self.credit // self.share + 1

    def pay_off(self, rounds: int) -> None:
        """Apply rounds in which the class does not run."""
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
