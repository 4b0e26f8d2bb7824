"""The commands of a random run: what users, other tools and accidents do to a lake."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import get_args

import pytest

from lakehold.errors import DefinitionError
from lakehold.failpoints import Point
from tests.whole.checks import check
from tests.whole.topics import Events, Upserts
from tests.whole.world import OUTPUT, SOURCE, SUBSCRIPTION, TABLES, UPSERTED, VIEW, World

_HOLDS = ("first", "second", "third")
_INGEST: tuple[Point, ...] = (
    "before-intent",
    "after-intent",
    "after-evolution",
    "before-merge",
    "before-publish",
    "after-merge",
    "after-table",
    "before-commit",
    "after-commit",
)
_MAINTAIN: tuple[Point, ...] = ("after-tags", "after-untag", "after-expiry", "after-compaction")
_PUBLISH: tuple[Point, ...] = ("before-publication", "before-publish", "after-publication")
assert {*_INGEST, *_MAINTAIN, *_PUBLISH} <= {*get_args(Point)}


def write(world: World) -> None:
    """Write to one topic, or to both."""
    topics: list[Upserts | Events] = [world.upserts, world.events]
    for topic in world.random.sample(topics, world.random.randint(1, 2)):
        topic.write(world.random.randint(1, 4))


def ingest(world: World) -> None:
    """Write, and ingest all."""
    write(world)
    world.ingest()


def die_in_ingest(world: World) -> None:
    """Write, and die in the ingest; sometimes more is written before the next one."""
    write(world)
    with world.dying_at(world.random.choice(_INGEST), world.random.choice([1, 1, 2])):
        world.lake.ingest(SOURCE)
    if world.random.random() < 0.5:
        write(world)


def add_column(world: World) -> None:
    """Let the database have one more column, in messages to come."""
    world.events.add_column()


def maintain(world: World) -> None:
    """Maintain the lake; sometimes die in it."""
    with world.dying_at(world.random.choice(_MAINTAIN), world.random.choice([1, 1, 2, 99])):
        for report in world.lake.maintain():
            assert report.error is None, report


def expire_by_others(world: World) -> None:
    """Let another tool expire all that no tag keeps."""
    name = world.random.choice(TABLES)
    world.lake.sql(
        f"CALL system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )


def compact_by_others(world: World) -> None:
    """Let another tool rewrite a table's files."""
    name = world.random.choice(TABLES)
    world.lake.sql(f"CALL system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")


def hold(world: World) -> None:
    """Make a hold, or advance or drop the one of that name; sometimes die while it is made."""
    name, table = world.random.choice(_HOLDS), world.random.choice(TABLES)
    window = world.lake.timelines.of([table])[table]
    times = world.pasts[table].times(window.since_ms, window.upper_ms)
    if name not in world.holds:
        at_ms = world.random.choice(times)
        with world.dying_at("after-hold", world.random.choice([1, 9])):
            world.lake.sql(f"CREATE HOLD {name} ON {table} AT {at_ms}")
        if name in {each.name for each in world.lake.holds.all()}:
            world.holds[name] = table, at_ms
    elif world.random.random() < 0.5:
        world.lake.sql(f"DROP HOLD {name}")
        del world.holds[name]
    else:
        held, at_ms = world.holds[name]
        window = world.lake.timelines.of([held])[held]
        to_ms = world.random.choice([ms for ms in world.pasts[held].times(at_ms, window.upper_ms) if ms >= at_ms])
        world.lake.sql(f"ALTER HOLD {name} ADVANCE TO {to_ms}")
        world.holds[name] = held, to_ms


def refresh_view(world: World) -> None:
    """Create the view, or refresh it, or drop it; sometimes die in the refresh."""
    if not world.has_view:
        world.lake.sql(
            f"CREATE MATERIALIZED VIEW {VIEW} AS SELECT n, count(*) AS rows, sum(id) AS ids FROM {UPSERTED} GROUP BY n"
        )
        world.has_view = True
    elif world.random.random() < 0.1:
        world.lake.sql(f"DROP MATERIALIZED VIEW {VIEW}")
        world.has_view = world.is_refreshed = False
        return
    with _dying_in_publication(world):
        world.lake.publish(VIEW)
        world.is_refreshed = True


def publish(world: World) -> None:
    """Create the subscription, or publish it, or drop it; sometimes die while it is published."""
    if world.published_from is None:
        world.lake.sql(f"CREATE SUBSCRIPTION {SUBSCRIPTION} INTO {OUTPUT} AS SUBSCRIBE {UPSERTED}")
        world.published_from = world.lake.timelines.of([UPSERTED])[UPSERTED].upper_ms - 1
    elif world.random.random() < 0.1:
        world.lake.sql(f"DROP SUBSCRIPTION {SUBSCRIPTION} CASCADE")
        world.published_from = None
        return
    with _dying_in_publication(world):
        world.lake.publish(SUBSCRIPTION)


def _dying_in_publication(world: World) -> AbstractContextManager[None]:
    return world.dying_at(world.random.choice(_PUBLISH), world.random.choice([1, 2, 9, 9]))


def consume(world: World) -> None:
    """Let a durable client take some deliveries and acknowledge some of them; sometimes it dies just after that."""
    taken = world.random.randint(1, 4)
    with world.dying_at("after-acknowledgement", world.random.choice([1, 2, 9])):
        for delivery in world.client().deliveries():
            rows = [(row[1], dict(zip(delivery.columns[2:], row[2:], strict=True))) for row in delivery]
            assert delivery.is_snapshot == (not world.acknowledged)
            if not taken:
                break
            taken -= 1
            world.acknowledged.append((delivery.timestamp, rows))
            delivery.acknowledge()


def create_again(world: World) -> None:
    """Drop a table and create it again: its history begins once more, and what reads it goes with it."""
    name = world.random.choice(TABLES)
    if any(table == name for table, _ in world.holds.values()):
        with pytest.raises(DefinitionError):
            world.lake.sql(f"DROP TABLE {name}")
    world.create_again(name)


def go_on_elsewhere(world: World) -> None:
    """Go on in another process."""
    world.reopen()


COMMANDS: dict[Callable[[World], None], int] = {
    ingest: 6,
    write: 2,
    die_in_ingest: 6,
    add_column: 1,
    maintain: 4,
    expire_by_others: 2,
    compact_by_others: 2,
    hold: 6,
    refresh_view: 4,
    publish: 4,
    consume: 4,
    create_again: 1,
    go_on_elsewhere: 1,
    check: 6,
}
"""The commands, with how often each is drawn."""
