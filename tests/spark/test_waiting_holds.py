"""A hold on unreadable tables gets its timestamp as soon as all of them are readable, without another command."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.failpoints import Point
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.debezium_shop import topic as topic  # noqa: PLC0414

pytestmark = pytest.mark.spark


def held_at(lake: Lake) -> dict[str, int | None]:
    """Return the timestamp of each hold in the system table."""
    return dict(lake.sql("SELECT name, at FROM mz_catalog.mz_holds ORDER BY name").rows)


def since(lake: Lake, table: str) -> int:
    return lake.timelines.of([table])[table].since_ms


def create(topic: Topic) -> str:
    return f"CREATE TABLE s.{topic.name} FROM SOURCE shop (TOPIC '{topic.name}') ENVELOPE DEBEZIUM"


def test_holds_begin_when_the_last_of_their_tables_is_readable(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(max_batch_records=6)
    shop = Shop(lake, tmp_path / "topics")
    early, late, new = (Topic(name, dict(COLUMNS)) for name in ("early", "late", "new"))
    lake.sql(f"BEGIN; {create(early)}; CREATE HOLD one ON s.early WITH (MAX LAG = '1 day'); COMMIT")
    lake.sql(f"{create(late)}; CREATE HOLD both ON s.early, s.late")
    early.snapshot([row(1), row(2)])
    for n in range(4):
        early.update(row(1), row(1, n=n))
    late.snapshot([row(1)], ended=False)
    shop.ingest(early, late)
    first = since(lake, "s.early")
    assert held_at(lake) == {"both": None, "one": first}
    assert first < lake.timelines.of(["s.early"])["s.early"].upper_ms - 1, "the backlog has more than a batch"
    assert lake.sql(f"SELECT count(*) FROM s.early AS OF {first}").rows == [(2,)]

    lake.sql("ALTER HOLD both RENAME TO renamed")
    late.snapshot([row(2)])
    shop.ingest(late)
    assert held_at(lake) == {"one": first, "renamed": since(lake, "s.late")}

    lake.sql("DROP HOLD renamed; DROP HOLD one; DROP TABLE s.early")
    lake.sql(f"BEGIN; {create(early)}; CREATE HOLD again ON s.early; COMMIT")
    lake.sql(f"BEGIN; {create(new)}; CREATE HOLD joins ON s.new; COMMIT")
    new.snapshot([row(1)])
    assert held_at(lake) == {"again": None, "joins": None}
    shop.ingest(new)
    assert held_at(lake) == {"again": since(lake, "s.early"), "joins": since(lake, "s.new")}


def test_a_hold_left_waiting_by_a_killed_process_begins_with_the_next_changes(shop: Shop, topic: Topic) -> None:
    shop.lake.sql(f"BEGIN; {create(topic)}; CREATE HOLD h ON s.t; COMMIT")
    topic.snapshot([row(1)])

    def die(here: Point) -> None:
        if here == "after-commit":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakehold.ingest.batch.failpoint", die)
        with pytest.raises(KeyboardInterrupt):
            shop.ingest(topic)
    assert held_at(shop.lake) == {"h": None}
    topic.create(row(2))
    shop.ingest(topic)
    assert held_at(shop.lake) == {"h": since(shop.lake, "s.t")}
