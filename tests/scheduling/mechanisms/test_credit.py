"""The account of a class: credit, debts, and slices that end after their turn."""

from __future__ import annotations

import pytest

from mavstream_server.scheduling.mechanisms.credit import Account


def account_of(share: int, literal: bool = False) -> Account:
    account = Account("H", literal)
    account.grant(share)
    return account


def turn(account: Account, elapsed: int) -> None:
    assert account.begin()
    account.running += 1
    account.charge(elapsed)
    account.leave()


@pytest.mark.parametrize(("literal", "credit"), [(False, 50), (True, 120)])
def test_step_3b_in_both_readings(literal: bool, credit: int) -> None:
    account = account_of(100, literal)
    turn(account, 170)  # 70 too much: c = 100 - (170 - 100) in either reading
    assert account.credit == 30
    turn(account, 80)  # 50 more than it had: 100 - (80 - 30), or as printed 100 - (80 - 100)
    assert account.credit == credit


def test_unused_quota_does_not_carry_over() -> None:
    account = account_of(100)
    turn(account, 40)
    assert account.credit == 100


def test_a_class_in_debt_waits_until_rounds_have_paid_for_it() -> None:
    account = account_of(100)
    turn(account, 350)  # c = 100 - 250
    assert account.credit == -150
    assert account.rounds_to_wait() == 2
    assert not account.begin()
    assert not account.begin()
    assert account.credit == 50
    assert account.begin()


def test_a_slice_on_another_core_counts_in_the_turn_in_which_it_began() -> None:
    account = account_of(100)
    assert account.begin()
    account.running = 1
    account.leave()  # nothing else was ready
    account.charge(100)
    assert account.begin()
    assert (account.credit, account.spent) == (100, 0)


def test_a_class_that_still_runs_on_another_core_continues_its_turn() -> None:
    account = account_of(100)
    assert account.begin()
    account.running = 2
    account.charge(60)
    account.leave()
    assert account.begin()
    assert (account.credit, account.spent) == (100, 60)


def test_a_slice_that_ends_after_its_turn_is_charged_to_the_next() -> None:
    account = account_of(100)
    assert account.begin()
    account.running = 2
    account.charge(250)
    account.leave()
    assert not account.begin()  # c = 100 - 150, and a share of this round
    account.charge(30)
    assert account.credit == 50 - 30


def test_debts_are_kept_when_shares_change() -> None:
    account = account_of(100)
    turn(account, 250)
    account.grant(40)
    assert account.credit == 40 - 150


def test_a_smaller_share_makes_no_debt_of_time_used_before() -> None:
    account = account_of(100)
    assert account.begin()
    account.running = 1
    account.charge(80)
    account.grant(40)
    assert (account.credit, account.spent) == (80, 80)
    account.leave()
    assert account.credit == 40
