"""A source that waits long for a transaction is looked at for a part of the time only."""

from __future__ import annotations

from lakehold.cli.patience import Patience


def test_who_waits_long_rests_four_times_as_long_as_a_look_takes() -> None:
    now = [100.0]
    patience = Patience(lambda: now[0])
    patience.waits("shop", waited_ms=10_000, look_s=3.0)
    assert not patience.is_due("shop")
    assert patience.is_due("billing")
    now[0] += 12
    assert patience.is_due("shop")
    patience.waits("shop", waited_ms=60_000, look_s=100.0)
    now[0] += 30
    assert patience.is_due("shop"), "its connector is looked after with each look"


def test_what_may_come_any_moment_is_looked_at_again_at_once() -> None:
    patience = Patience(lambda: 100.0)
    patience.waits("shop", waited_ms=9_999, look_s=3.0)
    assert patience.is_due("shop")
