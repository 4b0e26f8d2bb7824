"""Subscriptions with ENVELOPE HISTORY: their tables show from when to when each row had its values."""

from __future__ import annotations

from types import ModuleType

import pyarrow as pa
import pytest

from lakehold.errors import DefinitionError, LakeholdError
from lakehold.failpoints import Point
from lakehold.publish import history_publisher
from lakehold.publish.history_table import HistoryTable
from lakehold.tables import write_audit_publish
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.history_tables import Range, assert_shows, ranges
from tests.published_shop import COLUMNS, DAY_MS, Shop, publish_and_die
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

POINTS: list[tuple[ModuleType, Point]] = [
    (history_publisher, "before-publication"),
    (write_audit_publish, "before-publish"),
    (history_publisher, "after-publication"),
]
TRACKED = "(SELECT id, lower(v) AS v, v AS spelt FROM shop.t) ENVELOPE HISTORY (KEY (id)) TRACK (v)"


class OneCommit(Shop):
    """A shop whose writes are one commit each: an overwrite of PyIceberg's is two, and no row exists in between."""

    def write(self, *rows: tuple[int, str | None], name: str = "shop.t") -> None:
        catalog = self.lake.settings.catalog_name
        values = ", ".join(f"({id_}L, {'CAST(NULL AS string)' if v is None else repr(v)})" for id_, v in rows)
        self.lake.spark.sql(
            f"MERGE INTO {catalog}.{name} t USING (VALUES {values} AS s(id, v)) s ON t.id = s.id "
            "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET t.v = s.v "
            "WHEN NOT MATCHED AND s.v IS NOT NULL THEN INSERT (id, v) VALUES (s.id, s.v)"
        )
        committed = self.lake.catalog.load_table(name).metadata.last_updated_ms
        wait_for(lambda: now_ms() > committed, within_s=10)


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = OneCommit(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


def subscribe(shop: Shop, what: str = "shop.t ENVELOPE HISTORY (KEY (id))", options: str = "") -> None:
    shop.lake.sql(f"CREATE SUBSCRIPTION s INTO bi.out {options} AS SUBSCRIBE {what}")


def times(shop: Shop) -> list[int]:
    return [entry.timestamp_ms for entry in shop.lake.catalog.load_table("shop.t").history()]


def history(shop: Shop) -> list[Range]:
    return ranges(shop.lake, "bi.out")


def test_a_row_has_a_range_for_each_of_its_values_and_for_each_of_its_lives(shop: Shop) -> None:
    subscribe(shop)
    (report,) = shop.lake.publish("s")
    assert (report.timestamps, report.rows) == (1, 2)
    shop.write((1, "b"), (3, "c"))
    shop.write((1, "c"), (2, None))
    shop.write((3, None))
    (report,) = shop.lake.publish("s")
    assert (report.timestamps, report.rows) == (3, 5)
    assert shop.lake.publish("s") == []
    shop.write((2, "b"), (3, "c"))
    shop.write((1, None))
    shop.lake.publish("s")
    found = history(shop)
    begin = found[0][-2]
    t1, t2, t3, t4, t5 = [at for at in times(shop) if at > begin]
    assert found == [
        (1, "a", begin, t1),
        (1, "b", t1, t2),
        (1, "c", t2, t5),
        (2, "b", begin, t2),
        (2, "b", t4, None),
        (3, "c", t1, t3),
        (3, "c", t4, None),
    ]
    assert assert_shows(shop.lake, "bi.out", "SELECT * FROM shop.t", times(shop)) >= 6


def test_changes_of_columns_that_are_not_tracked_update_the_current_range(shop: Shop) -> None:
    subscribe(shop, TRACKED)
    shop.lake.publish("s")
    shop.write((1, "A"))
    shop.lake.publish("s")
    shop.write((1, "B"), (2, "B"))
    shop.write((1, "b"), (3, "C"))
    shop.write((2, None), (3, "c"))
    shop.lake.publish("s")
    ended = [(row[:3], row[-1] is None) for row in history(shop)]
    assert ended == [
        ((1, "a", "A"), False),
        ((1, "b", "b"), True),
        ((2, "b", "B"), False),
        ((3, "c", "c"), True),
    ]


def test_a_history_without_a_snapshot_knows_a_row_from_its_first_change(shop: Shop) -> None:
    """Begin without rows: what nobody changes is never shown, and a change of any column begins a range."""
    first = times(shop)[0]
    subscribe(shop, f"{TRACKED} WITH (SNAPSHOT = false) AS OF {first}")
    assert [report.rows for report in shop.lake.publish("s")] == [0]
    assert history(shop) == []
    shop.write((1, "A"))
    shop.write((1, "c"), (2, None))
    shop.lake.publish("s")
    t1, t2 = [at for at in times(shop) if at > first][-2:]
    assert [row[:3] for row in history(shop)] == [(1, "a", "A"), (1, "c", "c")]
    assert [row[-2:] for row in history(shop)] == [(t1, t2), (t2, None)]


def test_a_history_without_a_snapshot_that_begins_with_changes_has_no_empty_ranges(shop: Shop) -> None:
    subscribe(shop, "shop.t ENVELOPE HISTORY (KEY (id)) WITH (SNAPSHOT = false)")
    shop.write((1, "A"), (2, None), (3, "c"))
    shop.lake.publish("s")
    assert [(*row[:2], row[-1]) for row in history(shop)] == [(1, "A", None), (3, "c", None)]


def test_a_publisher_that_dies_around_its_commit_ends_and_begins_each_range_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe(shop)
    for number, (module, point) in enumerate(POINTS * 2):
        shop.write((1, f"value {number}"), (10 + number, "new"), (9 + number, None))
        publish_and_die(shop.lake, "s", monkeypatch, point, module)
    shop.lake.publish("s")
    assert [row[1] for row in history(shop) if row[0] == 1][-1] == "value 5"
    assert assert_shows(shop.lake, "bi.out", "SELECT * FROM shop.t", times(shop)) >= 6
    assert list(shop.lake.catalog.load_table("bi.out").metadata.refs) == ["main"]


def test_a_key_of_several_rows_stops_the_history_which_keeps_what_it_has(shop: Shop) -> None:
    subscribe(shop)
    shop.lake.publish("s")
    before = history(shop)
    shop.lake.catalog.load_table("shop.t").append(pa.table({"id": [2], "v": ["second"]}, COLUMNS))
    shop.write((3, "c"))
    with pytest.raises(LakeholdError, match="more than one row at a time") as violated:
        shop.lake.publish("s")
    assert violated.value.code == "history-key"
    assert "(2)" in violated.value.detail
    assert history(shop) == before


def test_after_a_lapse_all_ranges_end_and_others_begin(shop: Shop) -> None:
    subscribe(shop, options="WITH (ON LAPSE = 'resnapshot')")
    shop.lake.publish("s")
    begin = history(shop)[0][-2]
    shop.write((3, "c"))
    shop.write((1, None))
    shop.lapse()
    (report,) = shop.lake.publish("s")
    assert report.restarted
    restarted = int(shop.lake.catalog.load_table("bi.out").properties["lakehold.restarted-at"])
    assert history(shop) == [
        (1, "a", begin, restarted),
        (2, "b", begin, restarted),
        (2, "b", restarted, None),
        (3, "c", restarted, None),
    ]


def test_a_publisher_that_dies_while_the_history_starts_over_ends_and_begins_each_range_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe(shop, options="WITH (ON LAPSE = 'resnapshot')")
    shop.lake.publish("s")
    for number, (module, point) in enumerate(POINTS):
        shop.write((1, f"value {number}"), (10 + number, "new"), (9 + number, None))
        shop.lapse()
        publish_and_die(shop.lake, "s", monkeypatch, point, module)
    shop.write((3, "c"))
    shop.lake.publish("s")
    table = shop.lake.catalog.load_table("bi.out")
    restarted = int(table.properties["lakehold.restarted-at"])
    assert {end for *_, begin, end in history(shop) if begin < restarted} == {restarted}, "only the last restart counts"
    assert {row[:2] for row in history(shop) if row[-2] == restarted} == {(1, "value 2"), (2, "b"), (12, "new")}
    assert assert_shows(shop.lake, "bi.out", "SELECT * FROM shop.t", [at for at in times(shop) if at >= restarted]) >= 2
    assert list(table.metadata.refs) == ["main"]


def test_retain_output_removes_ranges_that_ended(shop: Shop) -> None:
    subscribe(shop)
    shop.lake.publish("s")
    shop.write((1, "b"))
    shop.lake.publish("s")
    output = shop.lake.subscriptions.publisher("s")._output
    assert isinstance(output, HistoryTable)
    end = next(row[-1] for row in history(shop) if row[-1] is not None)
    assert output.remove_rows_before(end, lambda: None)
    assert len(history(shop)) == 3
    assert output.remove_rows_before(end + DAY_MS, lambda: None)
    assert [row[:2] for row in history(shop)] == [(1, "b"), (2, "b")]
    shop.write((1, "c"))
    shop.lake.publish("s")
    assert [row[:2] for row in history(shop)] == [(1, "b"), (1, "c"), (2, "b")]


def test_a_column_that_comes_later_is_added_to_the_history(shop: Shop) -> None:
    subscribe(shop)
    shop.lake.publish("s")
    with shop.lake.catalog.load_table("shop.t").update_schema() as update:
        update.union_by_name(pa.schema([*COLUMNS, ("n", pa.int32())]))
    shop.lake.spark.sql(f"UPDATE {shop.lake.settings.catalog_name}.shop.t SET n = 7 WHERE id = 1")
    shop.lake.sql("SELECT 1")
    shop.lake.publish("s")
    assert [(*row[:3], row[-1] is None) for row in history(shop)] == [
        (1, "a", None, False),
        (1, "a", 7, True),
        (2, "b", None, True),
    ]


@pytest.mark.parametrize(
    ("change", "now"),
    [
        ("ADD COLUMN {}.z STRING FIRST", {"a": "A", "b": "B", "z": "Z"}),
        ("ALTER COLUMN {}.b FIRST", {"a": "A", "b": "B"}),
        ("DROP COLUMN {}.b", {"a": "A", "b": None}),
        pytest.param("RENAME COLUMN {}.b TO c", {"a": "A", "b": None, "c": "C"}, marks=pytest.mark.soak),
    ],
)
def test_values_inside_a_column_stay_in_the_fields_of_their_names(
    shop: Shop, change: str, now: dict[str, str | None]
) -> None:
    lake = shop.lake
    lake.sql("ALTER TABLE shop.t ADD COLUMNS (s STRUCT<a: STRING, b: STRING>, l ARRAY<STRUCT<a: STRING, b: STRING>>)")
    lake.sql("UPDATE shop.t SET s = named_struct('a', v, 'b', 'old'), l = array(named_struct('a', v, 'b', 'old'))")
    subscribe(shop)
    lake.publish("s")
    for parent in ("s", "l.element"):
        lake.sql(f"ALTER TABLE shop.t {change.format(parent)}")
    fields = lake.spark.table("shop.t").select("s.*").columns
    value = f"named_struct({', '.join(f'{name!r}, {name.upper()!r}' for name in fields)})"
    lake.sql(f"UPDATE shop.t SET s = {value}, l = array({value}) WHERE id = 1")
    lake.publish("s")
    rows = lake.catalog.load_table("bi.out").scan().to_arrow().to_pylist()
    shown = {(row["id"], row["is_current"]): (row["s"], *row["l"]) for row in rows}
    assert shown.pop((1, True)) == (now, now)
    for (id_, _), values in shown.items():
        assert values == ({**dict.fromkeys(now), "a": "ab"[id_ - 1], "b": "old"},) * 2


def test_statements_that_a_history_cannot_have_are_refused(shop: Shop) -> None:
    create = "CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE"
    for statement, code in [
        ("SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id))", "envelope-history"),
        ("EXPLAIN SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id))", "envelope-history"),
        (f"{create} shop.t ENVELOPE HISTORY (KEY (id)) TRACK (nothing)", "column-missing"),
        (f"{create} shop.t ENVELOPE HISTORY (KEY (id)) TRACK (ID)", "syntax"),
        (f"{create} (SELECT id, v AS Valid_To FROM shop.t) ENVELOPE HISTORY (KEY (id))", "output-columns"),
    ]:
        with pytest.raises(LakeholdError) as refused:
            shop.lake.sql(statement)
        assert refused.value.code == code, statement
    assert shop.lake.holds.all() == ()
    with pytest.raises(DefinitionError, match="for subscriptions") as client:
        shop.lake.durable("c", "SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id))")
    assert "CREATE SUBSCRIPTION" in client.value.hint


@pytest.mark.parametrize("change", ["RENAME COLUMN v TO w", "DROP COLUMN v"])
@pytest.mark.parametrize("clause", ["TRACK ALL EXCEPT (v)", "TRACK (v)"])
def test_a_history_goes_on_without_a_column_that_its_clause_names(shop: Shop, clause: str, change: str) -> None:
    shop.lake.sql("ALTER TABLE shop.t ADD COLUMN n INT")
    subscribe(shop, f"shop.t ENVELOPE HISTORY (KEY (id)) {clause}")
    shop.lake.publish("s")
    shop.lake.sql(f"ALTER TABLE shop.t {change}; UPDATE shop.t SET n = 1 WHERE id = 1")
    shop.lake.publish("s")
    found = [(row[0], row[2], row[-1] is None) for row in history(shop)]
    ends = [] if clause == "TRACK (v)" else [(1, None, False)]
    assert [row for row in found if not row[-1]] == ends
    assert {row for row in found if row[-1]} == {(1, 1, True), (2, None, True)}
