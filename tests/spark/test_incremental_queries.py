"""Incremental SUBSCRIBEs give the same rows as whole computations, over random histories and random queries."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException

from lakehold.lake import Lake
from lakehold.subscribe import delta_terms, grouped_rows
from lakehold.subscribe.grouped_rows import GroupedRows
from lakehold.subscribe.joined_rows import JoinedRows
from lakehold.subscribe.query_relation import QueryRelation
from lakehold.subscribe.relation import Relation, TimelinesByName
from lakehold.subscribe.row_by_row_changes import RowByRow
from lakehold.subscribe.row_values import tuples
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.touched_rows import TouchedRows
from tests.conftest import LakeFactory
from tests.histories import exact
from tests.incremental_queries import COLUMNS, change, create, dated, insert, is_whole, queries

pytestmark = pytest.mark.spark

HISTORIES = int(os.environ.get("INCREMENTAL_HISTORIES", "1"))
QUERIES = int(os.environ.get("INCREMENTAL_QUERIES", "3"))
TIMES = 5


def rows_of(tables: Iterable[pa.Table]) -> list[str]:
    """Return the rows in order; -0.0 is 0.0, which it equals."""
    return [exact(tuple(map(_positive_zero, row))) for table in tables for row in tuples(table)]


def _positive_zero(value: Any) -> Any:
    return 0.0 if isinstance(value, float) and value == 0 else value


def windows(chosen: random.Random, until: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive intervals of timestamps: a reader reads one after the other."""
    at = 1
    while at < until:
        end = chosen.randint(at + 1, until)
        yield at, end + 1
        at = end


@pytest.mark.parametrize("limited", [True, pytest.param(False, marks=pytest.mark.soak)])
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_incremental_results_are_those_of_the_whole_computation(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, seed: int, limited: bool
) -> None:
    chosen = random.Random(seed)
    if limited:
        # As for large tables: states grow too large while changes are read, and joins are restricted to lists and ranges of keys.
        monkeypatch.setattr(grouped_rows, "MOST_GROUPS", 4)
        monkeypatch.setattr(delta_terms, "WORTH_PRUNING_ROWS", 0)
        monkeypatch.setattr(delta_terms, "LISTED_KEYS", 2)
    lake = make_lake(foreign_lag_ms=0)
    create(lake)
    for name in COLUMNS:
        insert(lake, name, chosen, 8)
        for _ in range(TIMES - 1):
            change(lake, name, chosen)
    for text in queries(chosen, QUERIES):
        relation, timelines = opened(lake, text)
        assert isinstance(relation, QueryRelation) == is_whole(text), (text, relation)
        whole = whole_of(relation)
        until = max(timeline.upper_ms for timeline in timelines.values()) - 1
        wanted = rows_of(whole.changes(timelines, 1, until + 1, Sorting()))
        found: list[str] = []
        for after, end in windows(chosen, until):
            found += rows_of(relation.changes(timelines, after, end, Sorting()))
        assert found == wanted, text
        assert rows_of(relation.rows(timelines, 3, Sorting())) == rows_of(whole.rows(timelines, 3, Sorting())), text


def whole_of(relation: Relation) -> QueryRelation:
    """Return the relation that computes the same query whole."""
    if isinstance(relation, RowByRow):
        schemas = {relation.name: relation.schema}
        return QueryRelation(relation.query, schemas, relation.reading, relation.result)
    if isinstance(relation, QueryRelation):
        return relation
    assert isinstance(relation, JoinedRows | GroupedRows | TouchedRows)
    return relation.whole


def opened(lake: Lake, query: str) -> tuple[Relation, TimelinesByName]:
    found = lake.open_subscription(f"SUBSCRIBE ({query})")
    return found.subscription.relation, dated(found.timelines)


def test_a_state_of_another_time_zone_is_not_gone_on_with(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (at TIMESTAMP) USING iceberg; "
        "INSERT INTO s.t VALUES (TIMESTAMP '2026-01-01 00:30:00Z')"
    )
    query = "SUBSCRIBE (SELECT hour(at) AS hour, count(*) AS rows FROM s.t GROUP BY hour(at))"
    first = lake.sql(query)
    assert [row[1:] for row in first.rows] == [(1, 0, 1)]
    lake.sql("INSERT INTO s.t VALUES (TIMESTAMP '2026-01-01 00:40:00Z')")
    zone = lake.spark.conf.get("spark.sql.session.timeZone")
    try:
        lake.sql("SET TIME ZONE '+05:00'")
        later = lake.sql(f"{query} WITH (SNAPSHOT = false) AS OF {first.rows[-1][0]}")
    finally:
        lake.sql(f"SET TIME ZONE '{zone}'")
    assert [row[1:] for row in later.rows] == [(-1, 5, 1), (1, 5, 2)]


def test_groups_that_a_change_leaves_as_they_are_are_not_aggregated_again(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (k INT, n INT) USING iceberg; INSERT INTO s.t VALUES (1, 10), (2, 20)"
    )
    query = "SELECT k, sum(n) AS total FROM s.t WHERE n > 0 GROUP BY k"
    assert len(changes_after(lake, query, 0)) == 2
    lake.sql("INSERT INTO s.t VALUES (1, -1)")
    assert changes_after(lake, query, 1) == []
    lake.sql("CALL system.rewrite_data_files(table => 's.t', options => map('min-input-files', '2'))")
    assert changes_after(lake, query, 2) == []
    # Without the files of the rows before, the groups can only be those that were kept.
    for path in lake.catalog.load_table("s.t").inspect.data_files()["file_path"].to_pylist():
        Path(path.removeprefix("file:")).unlink()
    lake.sql("INSERT INTO s.t VALUES (1, 5)")
    assert changes_after(lake, query, 3) == [exact((4, -1, 1, 10)), exact((4, 1, 1, 15))]


def changes_after(lake: Lake, query: str, at_ms: int) -> list[str]:
    """Read the changes of a query from the number of a version on."""
    relation, timelines = opened(lake, query)
    assert isinstance(relation, GroupedRows), relation
    until_ms = max(timeline.upper_ms for timeline in timelines.values())
    return rows_of(relation.changes(timelines, at_ms, until_ms, Sorting()))


def here_and_on_spark(make_lake: LakeFactory) -> tuple[Lake, Lake]:
    """Open one lake twice: for a reader that computes diffs in the driver, and for one that leaves them to Spark."""
    here = make_lake(foreign_lag_ms=0)
    of = here.settings
    return here, make_lake(of.warehouse, catalog_name=of.catalog_name, foreign_lag_ms=0, driver_diff_max_rows=0)


_PRICED = "s.orders o JOIN s.rates r ON o.k = r.k"


def test_pairs_of_rows_that_were_never_in_the_tables_together_fail_no_query(make_lake: LakeFactory) -> None:
    lakes = here_and_on_spark(make_lake)
    lake, _ = lakes
    lake.sql("""
        CREATE NAMESPACE s;
        CREATE TABLE s.orders (k INT, amount INT) USING iceberg;
        CREATE TABLE s.rates (k INT, rate INT) USING iceberg;
        INSERT INTO s.orders VALUES (1, 10);
        INSERT INTO s.rates VALUES (1, 2), (2, 0);
    """)
    # A rate becomes valid when its first order comes, and invalid when its last one goes.
    lake.sql("INSERT INTO s.orders VALUES (2, 30); UPDATE s.rates SET rate = 5 WHERE k = 2")
    lake.sql("DELETE FROM s.orders WHERE k = 2; UPDATE s.rates SET rate = 0 WHERE k = 2")
    lake.sql("INSERT INTO s.orders VALUES (1, 20); UPDATE s.rates SET rate = 4 WHERE k = 1")
    queries = (
        f"SELECT o.k, o.amount / r.rate FROM {_PRICED}",
        "SELECT o.k, o.amount / r.rate FROM s.rates r JOIN s.orders o ON o.k = r.k",
        "SELECT o.k, CAST(o.amount / r.rate AS TINYINT) FROM s.orders o LEFT JOIN s.rates r ON o.k = r.k",
        f"SELECT o.k, sum(o.amount DIV r.rate), max(o.amount DIV r.rate) FROM {_PRICED} GROUP BY o.k",
        f"SELECT o.k, count(DISTINCT r.rate) FROM {_PRICED} WHERE o.amount / r.rate > 1 GROUP BY o.k",
    )
    for query in queries:
        relation, timelines = opened(lake, query)
        wanted = rows_of(whole_of(relation).changes(timelines, 1, 5, Sorting()))
        assert len(wanted) > 1, query
        for reader in lakes:
            relation, timelines = opened(reader, query)
            assert not isinstance(relation, QueryRelation), query
            assert rows_of(relation.changes(timelines, 1, 5, Sorting())) == wanted, query
    # An error that the query itself has is reported.
    lake.sql("INSERT INTO s.orders VALUES (2, 1); INSERT INTO s.rates VALUES (3, 1)")
    for reader in lakes:
        relation, timelines = opened(reader, queries[0])
        with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
            rows_of(relation.changes(timelines, 4, 6, Sorting()))


def test_text_with_a_collation_is_grouped_as_spark_does(make_lake: LakeFactory) -> None:
    lakes = here_and_on_spark(make_lake)
    lakes[0].sql("CREATE NAMESPACE s; CREATE TABLE s.t (n STRING, k INT) USING iceberg")
    lakes[0].sql("INSERT INTO s.t VALUES ('A', 1), ('a', 2), ('b', 3); INSERT INTO s.t VALUES ('a', 4)")
    lakes[0].sql("UPDATE s.t SET n = 'B' WHERE k = 3")
    for query, kind in (
        ("SELECT lower(n COLLATE UTF8_LCASE), count(*) FROM s.t GROUP BY n COLLATE UTF8_LCASE", QueryRelation),
        ("SELECT k % 2, lower(min(n COLLATE UTF8_LCASE)) FROM s.t GROUP BY k % 2", QueryRelation),
        ("SELECT count(*) FROM (SELECT DISTINCT n COLLATE UTF8_LCASE AS n FROM s.t) AS d", QueryRelation),
        ("SELECT n COLLATE UTF8_LCASE AS n, k FROM s.t", RowByRow),
        ("SELECT array(t.n COLLATE UTF8_LCASE), t.k FROM s.t JOIN s.t AS u ON t.k = u.k", JoinedRows),
    ):
        assert_adds_up(lakes, query, kind)


def test_text_that_is_not_utf_8_is_grouped_and_joined(make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_terms, "WORTH_PRUNING_ROWS", 0)
    lake = make_lake(foreign_lag_ms=0)
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t (b BINARY, n STRING, k INT) USING iceberg")
    for bytes_written in ("FF", "FE", "FF", "C3A4"):
        lake.sql(f"INSERT INTO s.t SELECT X'{bytes_written}', CAST(X'{bytes_written}' AS STRING), 1")
    lake.sql("DELETE FROM s.t WHERE b = X'FE'")
    for query, kind in (
        ("SELECT hex(s), c FROM (SELECT CAST(b AS STRING) AS s, count(*) AS c FROM s.t GROUP BY 1)", GroupedRows),
        ("SELECT n, count(*) FROM s.t GROUP BY n", GroupedRows),
        ("SELECT k, min(n), max(n) FROM s.t GROUP BY k", GroupedRows),
        ("SELECT hex(t.n) FROM s.t JOIN s.t AS u ON t.n = u.n", JoinedRows),
    ):
        assert_adds_up([lake], query, kind)


def assert_adds_up(lakes: Sequence[Lake], query: str, kind: type[Relation]) -> None:
    """Check in which way a query is computed, and that its diffs add up to what it shows at each timestamp.

    Each lake is another reader of the same tables. The first one computes what the query shows.
    """
    relation, timelines = opened(lakes[0], query)
    whole = whole_of(relation)
    times = range(1, max(timeline.upper_ms for timeline in timelines.values()))
    shown = [counted(whole.rows(timelines, at_ms, Sorting())) for at_ms in times]
    for lake in lakes:
        relation, timelines = opened(lake, query)
        assert isinstance(relation, kind), (query, relation)
        total: Counter[str] = Counter()
        found = relation.rows(timelines, 1, Sorting())
        for at_ms, counts in zip(times, shown, strict=True):
            total.update(counted(found))
            assert +total == counts, (query, at_ms)
            found = relation.changes(timelines, at_ms, at_ms + 2, Sorting())


def counted(tables: Iterable[pa.Table]) -> Counter[str]:
    """Return the sum of the diffs of each row."""
    total: Counter[str] = Counter()
    for _, diff, *row in (row for table in tables for row in tuples(table)):
        total[exact(row)] += diff
    return total
