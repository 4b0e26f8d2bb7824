"""`CHANGES` in queries and `lake.changes`: the rows of a SUBSCRIBE, and with NET what differs between two states by Spark."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from lakehold.errors import DefinitionError, LakeholdError, NotReadable, StatementBounds
from lakehold.lake import Lake
from lakehold.subscribe.row_values import tuples
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.random_histories import FORMATS, LEFT_AND_EXPIRED, PLACES, Bag, Change, Row, histories, made, one_of

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("REPLAY_EXAMPLES", "1"))
LAG_MS = 20
RANDOM = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def reader_of(lake: Lake, make_lake: LakeFactory, driver_diff_max_rows: int) -> Lake:
    """Open the lake again, with a reader that leaves larger diffs to Spark."""
    return make_lake(
        lake.settings.warehouse,
        catalog_name=lake.settings.catalog_name,
        foreign_lag_ms=LAG_MS,
        driver_diff_max_rows=driver_diff_max_rows,
    )


def summed(rows: Iterable[Row]) -> dict[Row, int]:
    """Sum raw diffs of all timestamps by row; rows that came and went are left out."""
    found: Bag = Counter()
    for row in rows:
        found[row[2:]] += row[1]
    return {row: count for row, count in found.items() if count}


@RANDOM
@given(changes=histories("s.t"), layout=FORMATS, few=st.sampled_from([0, 3]), begins=PLACES, ends=PLACES)
@example(changes=LEFT_AND_EXPIRED, layout=(2, "merge-on-read"), few=3, begins=0, ends=50)
def test_changes_of_random_histories_are_those_of_subscribe_and_net_is_their_sum(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str], few: int, begins: int, ends: int
) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=False, layout=layout)
    readable = past.readable(["s.t"])
    first = one_of(readable, begins)
    last = one_of([ms for ms in readable if ms >= first], ends)
    times = f"AS OF {first} UP TO {last + 1}"
    steps = lake.sql(f"SUBSCRIBE s.t WITH (SNAPSHOT = false) {times}").rows
    expected: Bag = Counter(past.state("s.t", last))
    expected.subtract(past.state("s.t", first))
    for reader in (lake, reader_of(lake, make_lake, few)):
        assert Counter(reader.sql(f"SELECT * FROM CHANGES(s.t {times})").rows) == Counter(steps)
        net = reader.sql(f"SELECT * FROM CHANGES(s.t {times}, NET)").rows
        assert summed(net) == summed(steps) == {row: count for row, count in expected.items() if count}
        assert len({row[2:] for row in net}) == len(net), "a row of its own for each"
        assert {row[0] for row in net} <= {max((row[0] for row in steps), default=0), *past.times(["s.t"])}
        assert tuples(reader.changes("s.t", first, last + 1).read_all()) == steps
        assert Counter(tuples(reader.changes("s.t", first, last + 1, net=True).read_all())) == Counter(net)


@RANDOM
@given(changes=histories("s.t"), layout=FORMATS, few=st.sampled_from([0, 3, 200_000]), begins=PLACES)
def test_changes_in_envelopes_are_those_of_subscribe_and_net_has_one_row_a_key(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str], few: int, begins: int
) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=True, layout=layout)
    reader, key = reader_of(lake, make_lake, few), past.histories["s.t"].key
    readable = past.readable(["s.t"])
    first, last = one_of(readable, begins), readable[-1]
    for envelope in ("UPSERT", "DEBEZIUM"):
        shape = f"ENVELOPE {envelope} (KEY ({key}))"
        steps = lake.sql(f"SUBSCRIBE s.t {shape} WITH (SNAPSHOT = false) AS OF {first} UP TO {last + 1}").rows
        found = reader.sql(f"SELECT * FROM CHANGES(s.t AS OF {first} UP TO {last + 1}, {shape})").rows
        assert Counter(found) == Counter(steps)
        stream = reader.changes("s.t", first, last + 1, envelope=envelope, key=[key])
        assert tuples(stream.read_all()) == steps
    before, after = ({row[0]: row[1:] for row in past.state("s.t", ms)} for ms in (first, last))
    expected = {
        key: (before.get(key), after.get(key)) for key in {*before, *after} if before.get(key) != after.get(key)
    }
    net = reader.sql(f"SELECT * FROM CHANGES(s.t AS OF {first} UP TO {last + 1}, NET, {shape})").rows
    sides = {row[2]: (row[3 : 3 + len(row[3:]) // 2], row[3 + len(row[3:]) // 2 :]) for row in net}
    assert len(sides) == len(net)
    kinds = {(True, False): "delete", (False, True): "insert", (True, True): "upsert"}
    assert {row[2]: row[1] for row in net} == {
        key: kinds[old is not None, new is not None] for key, (old, new) in expected.items()
    }
    for each, (old, new) in expected.items():
        assert sides[each] == (old or (None,) * len(sides[each][0]), new or (None,) * len(sides[each][1]))


# --- ways of reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "driver_diff_max_rows", [0, *(pytest.param(most, marks=pytest.mark.soak) for most in (8, 200_000))]
)
def test_many_steps_that_only_spark_can_read_give_the_rows_of_subscribe(
    make_lake: LakeFactory, driver_diff_max_rows: int
) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS, driver_diff_max_rows=driver_diff_max_rows)
    inserts = "; ".join(f"INSERT INTO s.t VALUES ({n}, {n % 3}), ({n}, {n % 3})" for n in range(10))
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (id INT, v INT) USING iceberg TBLPROPERTIES ('write.format.default' = 'orc');"
        f"INSERT INTO s.t VALUES (-1, 0); {inserts}; UPDATE s.t SET v = 9 WHERE id = 1"
    )
    steps = lake.sql("SUBSCRIBE s.t WITH (SNAPSHOT = false) AS OF EARLIEST").rows
    assert len(steps) == 12
    assert Counter(lake.sql("SELECT * FROM CHANGES(s.t AS OF EARLIEST)").rows) == Counter(steps)
    counts = lake.sql(
        "SELECT mz_state, count(*) FROM CHANGES(s.t AS OF EARLIEST, ENVELOPE UPSERT (KEY (id))) GROUP BY 1 ORDER BY 1"
    )
    assert counts.rows == [("key_violation", 11)]


@pytest.mark.parametrize("driver_diff_max_rows", [0, 200_000])
def test_keys_of_any_type_come_together(make_lake: LakeFactory, driver_diff_max_rows: int) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS, driver_diff_max_rows=driver_diff_max_rows)
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (f DOUBLE, m STRUCT<a: INT>, v STRING) USING iceberg;"
        "INSERT INTO s.t VALUES (0.0D, named_struct('a', 1), 'old'), (double('NaN'), NULL, 'old');"
        "INSERT OVERWRITE s.t VALUES (-0.0D, named_struct('a', 1), 'new'), (double('NaN'), NULL, 'new')"
    )
    found = lake.sql("SELECT * FROM CHANGES(s.t AS OF EARLIEST, ENVELOPE DEBEZIUM (KEY (f, m)))").rows
    assert sorted((row[1], row[4], row[5]) for row in found) == [("upsert", "old", "new")] * 2


@pytest.mark.usefixtures("generated_code")  # without it, listTables fails
def test_the_session_has_no_view_left_and_names_of_views_are_not_shown(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t (id INT) USING iceberg; INSERT INTO s.t VALUES (1)")
    with pytest.raises(LakeholdError) as refused:
        lake.sql("SELECT c.nothing FROM CHANGES(s.t AS OF EARLIEST) JOIN CHANGES(s.t AS OF EARLIEST, NET) AS c")
    assert "mz0" not in str(refused.value)
    lake.sql("SELECT * FROM CHANGES(s.t AS OF EARLIEST)")
    assert [each.name for each in lake.spark.catalog.listTables("s") if each.isTemporary] == []


# --- lake.changes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(lake: Lake) -> tuple[Lake, int]:
    """Return a lake with a table that changed, and the time of its first version."""
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (id INT, v STRING) USING iceberg;"
        "INSERT INTO s.t VALUES (1, 'a'), (2, 'b'); UPDATE s.t SET v = 'c' WHERE id = 1; DELETE FROM s.t WHERE id = 2"
    )
    return lake, lake.catalog.load_table("s.t").history()[0].timestamp_ms


def test_duckdb_and_pandas_read_the_stream(shop: tuple[Lake, int]) -> None:
    lake, first = shop
    changes = lake.changes("s.t", first)  # noqa: F841 - DuckDB finds it by its name
    assert duckdb.sql("SELECT v, sum(mz_diff) FROM changes GROUP BY v ORDER BY v").fetchall() == [
        ("a", -1),
        ("b", -1),
        ("c", 1),
    ]
    frame = lake.changes("s.t", first, envelope="upsert", key=["ID"], net=True).read_pandas()
    assert frame[["mz_state", "id"]].to_numpy().tolist() == [["upsert", 1], ["delete", 2]]
    assert lake.changes("s.t", first, first).read_all().num_rows == 0


def test_a_time_that_has_lapsed_is_an_error_unless_at_least_is_wanted(
    shop: tuple[Lake, int], caplog: pytest.LogCaptureFixture
) -> None:
    lake, first = shop
    with pytest.raises(NotReadable):
        lake.changes("s.t", first - 1)
    with caplog.at_level(logging.WARNING, "lakehold"):
        assert lake.changes("s.t", 1, at_least=True).read_all() == lake.changes("s.t", first).read_all()
    assert f"s.t: 1 is not readable: the output begins at {first}" in caplog.messages


def test_an_end_before_which_changes_may_still_come_is_refused(shop: tuple[Lake, int]) -> None:
    lake, first = shop
    later = now_ms() + 60_000
    with pytest.raises(NotReadable, match="are not complete yet"):
        lake.changes("s.t", first, later)
    notices = lake.sql(f"SELECT * FROM CHANGES(s.t AS OF {first} UP TO {later})").notices
    assert [notice.endswith(f"UP TO {later} is not reached yet") for notice in notices] == [True]
    upper = lake.timelines.of(["s.t"])["s.t"].upper_ms
    assert lake.changes("s.t", first, upper).read_all() == lake.changes("s.t", first).read_all()


def test_wrong_arguments_are_refused_before_anything_is_read(shop: tuple[Lake, int]) -> None:
    lake, first = shop
    with pytest.raises(DefinitionError, match="no envelope"):
        lake.changes("s.t", first, envelope="avro", key=["id"])
    with pytest.raises(DefinitionError, match="need a key"):
        lake.changes("s.t", first, envelope="upsert")
    with pytest.raises(DefinitionError, match="need an envelope"):
        lake.changes("s.t", first, key=["id"])
    with pytest.raises(DefinitionError, match='no column "nothing"'):
        lake.changes("s.t", first, envelope="upsert", key=["nothing"])
    with pytest.raises(DefinitionError, match="does not exist"):
        lake.changes("s.nothing", first)
    with pytest.raises(StatementBounds):
        lake.changes("s.t", first, first - 1)
