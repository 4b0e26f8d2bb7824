"""Names of holds: generated from their tables' names by default, and changed together between BEGIN and COMMIT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.errors import DefinitionError, PermissionDenied
from lakehold.lake import Lake, connect
from lakehold.sql.run.hold_change import HoldChange
from lakehold.state.holds import HOLDS, Holds

COLUMNS = pa.schema([("id", pa.int64())])
NEW_TABLE = "CREATE TABLE shop.items FROM SOURCE feed (TOPIC 'items') ENVELOPE UPSERT;"
SWAP = "BEGIN; ALTER HOLD a RENAME TO a_old; ALTER HOLD b RENAME TO a; COMMIT"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Return a lake with the table `shop.t`, whose first snapshot is held by `a` and whose second one by `b`."""
    with connect(str(tmp_path), foreign_lag_ms=0) as lake:
        lake.catalog.create_namespace("shop")
        table = lake.catalog.create_table("shop.t", COLUMNS)
        for number in range(2):
            table.append(pa.table({"id": [number]}, COLUMNS))
        first, second = (entry.timestamp_ms for entry in lake.catalog.load_table("shop.t").history())
        lake.sql(f"CREATE HOLD a ON shop.t AT {first}; CREATE HOLD b ON shop.t AT {second}")
        yield lake


def tags(lake: Lake) -> dict[str, int]:
    """Return the index of the snapshot of each hold's tag."""
    table = lake.catalog.load_table("shop.t")
    order = [entry.snapshot_id for entry in table.history()]
    return {name: order.index(ref.snapshot_id) for name, ref in table.metadata.refs.items() if name.startswith("hold_")}


def commits(lake: Lake) -> int:
    return len(lake.catalog.load_table(HOLDS.table).metadata.snapshots)


def test_a_hold_without_a_name_is_reported_and_shown_under_its_generated_name(lake: Lake) -> None:
    lake.sql("CREATE SOURCE feed FROM FILES '/x' FORMAT JSON")
    result = lake.sql(f"BEGIN; {NEW_TABLE} CREATE HOLD ON shop.items; COMMIT")
    assert result.notices == ('the hold on "shop.items" is named "items_hold"',)
    result = lake.sql("CREATE HOLD ON shop.items, shop.t; CREATE HOLD ON shop.items")
    assert result.notices == (
        'the hold on "shop.items", "shop.t" is named "items_t_hold"',
        'the hold on "shop.items" is named "items_hold1"',
    )
    assert lake.sql("SHOW CREATE HOLD items_hold1").rows == [
        ("shop.items_hold1", "CREATE HOLD shop.items_hold1 ON shop.items\n  WITH (MAX LAG = '3h', CHECK = 'off')")
    ]
    lake.sql("ALTER HOLD items_hold RENAME TO since_ever; DROP HOLD items_hold1")
    assert [hold.name for hold in lake.holds.all()] == ["a", "b", "since_ever", "items_t_hold"]


def test_an_existing_hold_in_another_namespace_is_reported_with_both_names(lake: Lake) -> None:
    assert lake.sql("CREATE HOLD IF NOT EXISTS shop.a ON shop.t").notices == ()
    assert lake.sql("CREATE HOLD IF NOT EXISTS reports.a ON shop.t").notices == (
        'hold "a" exists and stays as it is: it has shop.a, the statement says reports.a',
    )


def test_a_hold_takes_the_name_of_another_in_one_commit(lake: Lake) -> None:
    assert tags(lake) == {"hold_a": 0, "hold_b": 1}
    ids, before = {hold.name: hold.hold_id for hold in lake.holds.all()}, commits(lake)
    lake.sql(SWAP)
    assert {hold.name: hold.hold_id for hold in lake.holds.all()} == {"a_old": ids["a"], "a": ids["b"]}
    assert tags(lake) == {"hold_a_old": 0, "hold_a": 1}
    assert commits(lake) == before + 1
    lake.sql("BEGIN; DROP HOLD a; ALTER HOLD shop.a_old RENAME TO a; COMMIT")
    assert {hold.name: hold.hold_id for hold in lake.holds.all()} == {"a": ids["a"]}
    assert tags(lake) == {"hold_a": 0}


def test_a_statement_sees_the_effects_of_earlier_ones_and_all_notices_are_reported(lake: Lake) -> None:
    result = lake.sql("""
        BEGIN;
        DROP HOLD IF EXISTS c;
        ALTER HOLD a RENAME TO c;
        ALTER HOLD shop.c RENAME TO d;
        DROP HOLD IF EXISTS a;
        DROP HOLD d;
        COMMIT
    """)
    assert [hold.name for hold in lake.holds.all()] == ["b"]
    assert result.notices == (
        'hold "c" does not exist: nothing to drop',
        'hold "a" does not exist: nothing to drop',
    )


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER HOLD b RENAME TO subscription_s", "hold-exists"),
        ("ALTER HOLD a RENAME TO c", "hold-missing"),
        ("DROP HOLD a", "hold-missing"),
        ("DROP HOLD subscription_s", "hold-kept"),
    ],
)
def test_a_refused_statement_leaves_nothing_of_its_transaction(lake: Lake, statement: str, code: str) -> None:
    lake.sql("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.t")
    before = (lake.holds.all(), tags(lake), commits(lake))
    with pytest.raises(DefinitionError) as refused:
        lake.sql(f"BEGIN; ALTER HOLD a RENAME TO a_old;\n{statement};\nCOMMIT")
    assert (refused.value.code, refused.value.place and refused.value.place.line) == (code, 2)
    assert (lake.holds.all(), tags(lake), commits(lake)) == before


def test_a_transaction_takes_the_privileges_of_its_statements(lake: Lake, tmp_path: Path) -> None:
    lake.sql("CREATE ROLE ops")
    with connect(str(tmp_path), role="ops") as ops:
        ops.sql("CREATE ROLE bi")
        before = lake.holds.all()
        with connect(str(tmp_path), role="bi") as bi:
            with pytest.raises(PermissionDenied, match=r'role "bi" may not rename hold "shop\.a"'):
                bi.sql(SWAP)
            assert lake.holds.all() == before
            ops.sql("GRANT CREATE ON SCHEMA shop TO bi")
            bi.sql(SWAP)
    assert [hold.name for hold in lake.holds.all()] == ["a_old", "a"]


def test_a_transaction_is_planned_again_when_another_came_first(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = iter(["DROP HOLD b"])
    planned = HoldChange.apply

    def raced(change: HoldChange, holds: Holds) -> Holds:
        after = planned(change, holds)
        for statement in meanwhile:
            with connect(str(tmp_path)) as other:
                other.sql(statement)
        return after

    monkeypatch.setattr(HoldChange, "apply", raced)
    first = lake.holds.hold("a")
    result = lake.sql("BEGIN; DROP HOLD IF EXISTS b; ALTER HOLD a RENAME TO b; COMMIT")
    assert [(hold.hold_id, hold.name) for hold in lake.holds.all()] == [(first.hold_id, "b")]
    assert result.notices == ('hold "b" does not exist: nothing to drop',)
    assert tags(lake) == {"hold_b": 0}


@pytest.mark.parametrize("script", ["{0}; {1}", "BEGIN; {0}; {1}; COMMIT"])
def test_views_whose_names_differ_in_the_place_of_the_dot_have_a_hold_each(lake: Lake, script: str) -> None:
    lake.sql(f"CREATE SOURCE feed FROM FILES '/x' FORMAT JSON; {NEW_TABLE} CREATE HOLD view_bi_a_b ON shop.t")
    views = [f"CREATE MATERIALIZED VIEW {name} AS SELECT * FROM shop.items" for name in ("bi.a_b", "bi_a.b")]
    lake.sql(script.format(*views))
    assert len({hold.name for hold in lake.holds.all()}) == len(lake.holds.all()) == 5
    lake.sql("DROP MATERIALIZED VIEW bi_a.b")
    left = {hold.kept_by for hold in lake.holds.all() if hold.kept_by is not None}
    assert left == {lake.definitions.definitions().view("bi.a_b").object_id}
