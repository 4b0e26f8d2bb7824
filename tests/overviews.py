"""Overviews made by hand, with every kind of thing that a page draws."""

from __future__ import annotations

from dataclasses import replace

from lakehold.model.backlog import Backlog
from lakehold.model.readers import ReaderError
from lakehold.overview.facts import CheckFacts, FollowerFacts, HoldFacts, Overview, SourceFacts, TableFacts
from lakehold.overview.table_status import State
from lakehold.state.subscribers import SubscriberKind

NOW_MS = 1_795_341_600_000
"""2026-11-22 10:00 UTC."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
UPPER_MS = NOW_MS - 4_000
"""The `upper` of the sources."""


def hold(
    name: str, *, behind_ms: int, max_lag_ms: int = 3 * HOUR_MS, upper_ms: int = UPPER_MS, forced_ms: int | None = None
) -> HoldFacts:
    return HoldFacts(name, upper_ms - behind_ms, upper_ms, behind_ms, max_lag_ms, forced_ms, ("shop.orders",))


def follower(
    name: str,
    *,
    behind_ms: int | None,
    state: str = "idle",
    kind: SubscriberKind = SubscriberKind.SUBSCRIPTION,
    held_ms: int | None = None,
    starts_over: bool = False,
) -> FollowerFacts:
    position_ms = None if behind_ms is None else UPPER_MS - behind_ms
    kept = hold(f"{kind}_{name}", behind_ms=held_ms if held_ms is not None else (behind_ms or 0) + 1)
    return FollowerFacts(kind, name, state, position_ms, behind_ms, ("shop.orders",), kept, starts_over)


def check(*, success: bool = True, at_ms: int = NOW_MS - HOUR_MS) -> CheckFacts:
    failures = () if success else ("expect_column_values_to_be_between (amount): expected at least 0, found -4.50",)
    return CheckFacts("nightly", at_ms, success, 12, failures, "/lake/_checks/shop.orders/1.html", at_ms + MINUTE_MS)


def table(name: str = "shop.orders", *, every_ms: int = 10 * MINUTE_MS, over_ms: int = 6 * HOUR_MS) -> TableFacts:
    """Return a table in order: a snapshot each `every_ms` over the last `over_ms`."""
    since_ms = NOW_MS - over_ms
    return TableFacts(
        name=name,
        source="shop",
        state=State.LIVE,
        since_ms=since_ms,
        upper_ms=UPPER_MS,
        rows=1_204_331,
        snapshots_ms=tuple(range(since_ms, UPPER_MS, every_ms)),
    )


STOPPED = replace(
    table("shop.payments"),
    state=State.STOPPED,
    upper_ms=NOW_MS - 2 * HOUR_MS,
    snapshots_ms=table().snapshots_ms[:24],
    error=ReaderError(
        "type-changed",
        'column "amount" of "shop.payments" changed from decimal(10, 2) to string',
        "The table cannot follow: its rows have numbers there.",
        "Undo the change upstream, or drop the table and create it again.",
    ),
)
HELD = replace(
    table(),
    open_errors=3,
    holds=(hold("report", behind_ms=2 * HOUR_MS), hold("audit", behind_ms=5 * HOUR_MS)),
    followers=(
        follower("order_changes", behind_ms=40_000, state="running"),
        follower("pricing", behind_ms=2 * HOUR_MS, kind=SubscriberKind.CLIENT),
    ),
    checks=(check(), replace(check(success=False), hold="report", at_ms=NOW_MS - 2 * HOUR_MS)),
)
NEW = TableFacts("shop.returns", "shop", State.NEW)
CATCHING_UP = replace(
    table("shop.reviews"), state=State.CATCHING_UP, since_ms=None, backlog=Backlog(400_000, 1_200_000)
)
FOREIGN = replace(
    table("finance.rates"),
    source=None,
    state=State.FOREIGN,
    followers=(follower("rates", behind_ms=5 * HOUR_MS, state="lapsed", held_ms=3 * HOUR_MS),),
)
BUSY = replace(
    table("shop.clicks", every_ms=8_640, over_ms=DAY_MS), rows=98_400_112, checks=(replace(check(), hold=None),)
)
LONG = replace(
    table("a_namespace_with_a_long_name.and_a_table_whose_name_nobody_would_like_to_write_twice_or_even_once"),
    source="a_source_with_a_name_of_its_own_that_is_long",
    holds=(hold("a_hold_whose_name_says_at_length_what_it_is_for_and_who_needs_it_until_when", behind_ms=HOUR_MS),),
)


def overview(*tables: TableFacts, interrupted_ms: int | None = None) -> Overview:
    names = sorted({facts.source for facts in tables if facts.source is not None})
    sources = tuple(
        SourceFacts(
            name,
            sum(facts.source == name for facts in tables),
            sum(facts.source == name and facts.state is State.STOPPED for facts in tables),
            UPPER_MS,
            "worker-1:4711" if interrupted_ms is None else None,
            interrupted_ms,
        )
        for name in names
    )
    return Overview("file:///data/lake", NOW_MS, tuple(sorted(tables, key=lambda facts: facts.name)), sources)


def everything() -> Overview:
    """Return a lake with each kind of table and each kind of problem."""
    return overview(
        STOPPED, HELD, NEW, CATCHING_UP, FOREIGN, BUSY, LONG, table("shop.customers"), interrupted_ms=NOW_MS - MINUTE_MS
    )


def many(number: int = 200) -> Overview:
    """Return a lake of `number` tables, few of which have problems."""
    rest = (
        table(f"shop.table_{number_of_table:03}", every_ms=(1 + number_of_table) * MINUTE_MS)
        for number_of_table in range(number - 3)
    )
    return overview(STOPPED, HELD, BUSY, *rest)
