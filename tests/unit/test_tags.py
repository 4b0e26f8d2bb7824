"""Tags of holds, which appear, move and disappear on real tables under a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import Table

from lakehold.errors import NotReadable
from lakehold.holds.tags import TableTags, unneeded_tags, wanted_tags
from lakehold.iceberg import attempts
from lakehold.iceberg.attempts import Attempt
from lakehold.iceberg.metadata_commits import by_file
from lakehold.iceberg.refs import FOREVER_MS
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog
from lakehold.maintenance.history import Needs, unneeded_snapshots
from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.holds import Check, HeldTable, Hold, HoldStore
from lakehold.state.store import MemoryState
from tests.dated_tables import FED, FOREIGN, SCHEMA, START_MS, Shop, at, window


class Held(Shop):
    """A shop whose tables can be held."""

    def __init__(self, warehouse: Path) -> None:
        super().__init__(open_catalog(load_settings(warehouse=str(warehouse))))
        self.catalog.create_namespace("shop")
        self.store = HoldStore(MemoryState())
        self.timelines = replace(self.timelines, holds=self.store.holds)
        self.keeping = TableTags(self.catalog, self.timelines, self.store)

    def hold(self, name: str, full_name: str, at: int | None, object_id: str | None = None) -> Hold:
        """Create a hold, or move the one of this name."""
        if object_id is None:
            fed = full_name == FED
            object_id = "t" if fed else str(self.catalog.load_table(full_name).metadata.table_uuid)
        made = Hold(
            hold_id=name,
            namespace="shop",
            name=name,
            at_ms=None if at is None else START_MS + at,
            tables=(HeldTable(object_id, full_name, full_name == FED),),
            max_lag_ms=100_000,
            check=Check.OFF,
            sql="",
            created_at_ms=0,
        )
        self.store.change(lambda holds: [*(hold for hold in holds if hold.name != name), made])
        return made

    def drop(self, name: str) -> None:
        self.store.change(lambda holds: [hold for hold in holds if hold.name != name])

    def unneeded(self, full_name: str) -> tuple[str, ...]:
        return self.keeping.unneeded(self.timeline(full_name), self.store.holds())

    def tags(self, full_name: str) -> dict[str, int]:
        """Return the table's tags, with times counted from `START_MS`."""
        refs = self.catalog.load_table(full_name).metadata.refs
        return {short(name): ref.snapshot_id for name, ref in refs.items() if name != "main"}

    def cut_log(self, full_name: str) -> None:
        """Remove all but the last entry of the log, as Iceberg's Java library does when it expires the snapshot before it."""

        def cut(table: Table) -> Attempt[int]:
            assert isinstance(self.catalog, RememberingSqlCatalog)
            return by_file(
                self.catalog, table, 0, lambda fields: {**fields, "snapshot-log": fields["snapshot-log"][-1:]}
            )

        attempts.change(self.catalog, full_name, cut)

    def location(self, full_name: str) -> str:
        return self.catalog.load_table(full_name).metadata_location


def short(tag: str) -> str:
    return f"mz_{int(tag[3:]) - START_MS}" if tag.startswith("mz_") else tag


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    shop = Held(tmp_path)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", shop.clock)
    monkeypatch.setattr("pyiceberg.table.update.datetime", shop.clock)
    yield shop
    shop.catalog.close()


def test_a_hold_is_on_the_version_of_its_time_and_each_later_one_has_its_own_tag(shop: Held) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300, 400)]
    shop.hold("h", FOREIGN, 250)
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {"hold_h": made[1], "mz_300": made[2], "mz_400": made[3]}


def test_several_holds_share_the_tags_of_later_versions(shop: Held) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300)]
    shop.hold("early", FOREIGN, 100)
    shop.hold("late", FOREIGN, 200)
    shop.hold("future", FOREIGN, 900)
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {
        "hold_early": made[0],
        "hold_late": made[1],
        "hold_future": made[2],
        "mz_200": made[1],
        "mz_300": made[2],
    }


def test_a_hold_in_the_future_follows_the_newest_snapshot_until_its_time_has_come(shop: Held) -> None:
    (first,) = [shop.write(FOREIGN, 100)]
    shop.hold("h", FOREIGN, 250)
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {"hold_h": first}
    second = shop.write(FOREIGN, 200)
    shop.keeping.put([FOREIGN])
    third = shop.write(FOREIGN, 300)
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {"hold_h": second, "mz_300": third}


def test_a_hold_that_waits_for_a_first_time_begins_at_the_first_readable_time(shop: Held) -> None:
    shop.feed()
    shop.hold("h", FED, None)
    shop.keeping.put([FED])
    shop.batch(100, since=None)
    shop.keeping.keep(FED)
    assert shop.tags(FED) == {}
    (first,) = shop.batch(200, since=200)
    (second,) = shop.batch(300, since=200)
    shop.keeping.keep(FED)
    assert shop.tags(FED) == {"hold_h": first, "mz_300": second}


def test_before_its_first_row_a_table_has_no_snapshot_that_a_hold_could_be_on(shop: Held) -> None:
    shop.feed()
    (first,) = shop.batch(200, since=100)
    shop.hold("h", FED, 150)
    shop.keeping.put([FED])
    assert shop.tags(FED) == {"mz_200": first}


def test_a_batch_that_is_not_committed_yet_is_kept_and_the_tag_follows_its_last_step(shop: Held) -> None:
    shop.feed()
    (first,) = shop.batch(100)
    shop.hold("h", FED, 100)
    intent = shop.begin(200)
    step = shop.write(FED, 210, source="feed", timestamp=intent.mz_timestamp, step=1)
    shop.keeping.keep(FED)
    assert shop.tags(FED) == {"hold_h": first, "mz_200": step}
    last = shop.write(FED, 220, source="feed", timestamp=intent.mz_timestamp, step=2)
    shop.keeping.keep(FED)
    assert shop.tags(FED) == {"hold_h": first, "mz_200": last}


def test_a_snapshot_that_was_current_twice_is_tagged_for_both_times(shop: Held) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200)]
    shop.set_back(FOREIGN, made[0], 300)
    after = shop.write(FOREIGN, 400)
    shop.hold("h", FOREIGN, 100)
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {"hold_h": made[0], "mz_200": made[1], "mz_300": made[0], "mz_400": after}


def test_putting_existing_tags_commits_nothing(shop: Held) -> None:
    for ms in (100, 200):
        shop.write(FOREIGN, ms)
    shop.write("shop.free", 300)
    shop.hold("h", FOREIGN, 100)
    shop.keeping.put([FOREIGN, "shop.free", "shop.not_there"])
    before = shop.location(FOREIGN), shop.location("shop.free")
    shop.keeping.put([FOREIGN, "shop.free"])
    shop.keeping.keep("shop.free")
    assert (shop.location(FOREIGN), shop.location("shop.free")) == before


def test_a_moved_hold_moves_its_tag_and_the_last_dropped_hold_removes_all_tags(shop: Held) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300)]
    shop.hold("h", FOREIGN, 100)
    shop.keeping.put([FOREIGN])
    shop.hold("h", FOREIGN, 200)
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {"hold_h": made[1], "mz_200": made[1], "mz_300": made[2]}
    unneeded = shop.unneeded(FOREIGN)
    assert [short(tag) for tag in unneeded] == ["mz_200"]
    shop.keeping.remove(FOREIGN, unneeded)
    assert shop.tags(FOREIGN) == {"hold_h": made[1], "mz_300": made[2]}

    shop.drop("h")
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {}


def test_a_tag_that_a_hold_needs_by_now_is_not_removed(shop: Held) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300)]
    shop.hold("h", FOREIGN, 100)
    shop.keeping.put([FOREIGN])
    shop.drop("h")
    unneeded = shop.unneeded(FOREIGN)
    shop.hold("again", FOREIGN, 200)
    shop.keeping.remove(FOREIGN, unneeded)
    assert shop.tags(FOREIGN) == {"hold_again": made[1], "mz_300": made[2]}


def test_tags_of_others_are_not_changed(shop: Held) -> None:
    (first,) = [shop.write(FOREIGN, 100)]
    manage = shop.catalog.load_table(FOREIGN).manage_snapshots()
    manage.create_tag(first, "hold_mine").create_tag(first, "mz_1", max_ref_age_ms=1_000).create_branch(
        first, "hold_b"
    ).commit()
    shop.keeping.put([FOREIGN])
    assert shop.unneeded(FOREIGN) == ()
    assert set(shop.tags(FOREIGN)) >= {"hold_mine", "hold_b"}


def test_a_hold_on_a_recreated_table_is_not_on_the_new_one(shop: Held) -> None:
    shop.write(FOREIGN, 100)
    shop.hold("h", FOREIGN, 100)
    shop.catalog.drop_table(FOREIGN)
    shop.write(FOREIGN, 200)
    shop.keeping.put([FOREIGN])
    shop.hold("undeclared", FED, 100, object_id="another")
    shop.feed()
    shop.batch(300)
    shop.keeping.put([FED])
    assert shop.tags(FOREIGN) == shop.tags(FED) == {}


def test_a_later_tag_stays_where_another_tool_made_the_log_forget_its_version(shop: Held) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200)]
    shop.hold("h", FOREIGN, 100)
    shop.keeping.put([FOREIGN])
    untagged = shop.write(FOREIGN, 300)
    last = shop.write(FOREIGN, 400)
    shop.expire(FOREIGN, untagged)
    timeline = shop.timeline(FOREIGN)
    assert unneeded_tags(timeline, shop.store.holds()) == ()
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {"hold_h": made[0], "mz_200": made[1], "mz_400": last}


def held_beyond_the_log(shop: Held, holds: Mapping[str, int]) -> list[int]:
    """Hold a table at times of which soon only tags show what was current; return its snapshots but that which is expired."""
    shop.catalog.create_table(FOREIGN, SCHEMA, properties={"write.metadata.previous-versions-max": "3"})
    made = [shop.write(FOREIGN, ms) for ms in (100, 200)]
    for name, ms in holds.items():
        shop.hold(name, FOREIGN, ms)
    shop.keeping.put([FOREIGN])
    untagged = shop.write(FOREIGN, 300)
    made += [shop.write(FOREIGN, 400)]
    shop.expire(FOREIGN, untagged)
    shop.cut_log(FOREIGN)
    made += [shop.write(FOREIGN, ms) for ms in (500, 600, 700, 800)]
    shop.clock.ms = 5_000
    shop.keeping.put([FOREIGN])
    return made


def test_no_tag_of_a_hold_goes_while_a_renamed_one_has_no_known_version(shop: Held) -> None:
    made = held_beyond_the_log(shop, {"one": 150, "two": 160})
    for name, ms in (("one", 150), ("two", 160)):
        shop.drop(name)
        shop.hold(f"renamed_{name}", FOREIGN, ms)
    shop.keeping.put([FOREIGN])
    tags = shop.tags(FOREIGN)
    assert (tags["hold_one"], tags["hold_two"]) == (made[0], made[0]), "it is not known whose tag is which"


def test_a_hold_stays_where_it_is_when_only_its_tags_show_what_was_current(shop: Held) -> None:
    """Let another tool expire a snapshot between two tagged ones and then write until no earlier metadata file is left."""
    made = held_beyond_the_log(shop, {"h": 150})
    assert shop.tags(FOREIGN) == {
        "hold_h": made[0],
        "mz_200": made[1],
        **dict(zip(("mz_400", "mz_500", "mz_600", "mz_700", "mz_800"), made[2:], strict=True)),
    }
    timeline = shop.timelines.reaching(shop.timeline(FOREIGN), START_MS + 150)
    assert (window(timeline)[0], at(timeline, 150), at(timeline, 200), at(timeline, 400)) == (150, *made[:3])
    with pytest.raises(NotReadable):
        timeline.at(START_MS + 350)
    needs = Needs(START_MS + 150, START_MS + 5_000, START_MS + 5_000, is_written=False)
    assert unneeded_snapshots(timeline, needs, shop.unneeded(FOREIGN)) == ()

    shop.drop("h")
    shop.hold("renamed", FOREIGN, 150)
    assert at(shop.timelines.reaching(shop.timeline(FOREIGN), START_MS + 150), 150) == made[0]
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN)["hold_renamed"] == made[0]
    assert "hold_h" not in shop.tags(FOREIGN)

    shop.hold("other", FOREIGN, 450)
    shop.keeping.put([FOREIGN])
    shop.hold("other", FOREIGN, 160)
    assert at(shop.timelines.reaching(shop.timeline(FOREIGN), START_MS + 150), 160) == made[0], "not the rows of 450"
    shop.drop("other")

    shop.hold("renamed", FOREIGN, 200)
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN)["hold_renamed"] == made[1]
    assert at(shop.timelines.reaching(shop.timeline(FOREIGN), START_MS + 200), 200) == made[1]


def test_without_holds_no_tag_is_wanted(shop: Held) -> None:
    shop.write(FOREIGN, 100)
    assert wanted_tags(shop.timeline(FOREIGN), ()) == {}
    assert FOREVER_MS == 9_223_372_036_854_775_807
