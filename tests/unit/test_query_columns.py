"""The columns of its tables that a query reads, by their field ids."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from lakehold.errors import DefinitionError
from lakehold.sql.query.queries import parse_query
from lakehold.sql.text.dialect import split
from lakehold.subscribe.query_columns import (
    TABLE_UUID,
    QueryColumns,
    differences,
    from_text,
    joined,
    query_columns,
    replaced_tables,
    to_text,
)
from lakehold.subscribe.statement import Query

TABLE = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "n", LongType()),
    NestedField(3, "s", StructType(NestedField(4, "Text", StringType()))),
)
ALL = {"id": 1, "n": 2, "s": 3, "s.text": 4}


def read(text: str) -> dict[str, int]:
    return dict(query_columns(Query(text, ()), {"shop.t": TABLE})["shop.t"])


def test_a_subscribe_of_a_table_reads_all_columns() -> None:
    assert query_columns("shop.t", {"shop.t": TABLE}) == {"shop.t": ALL}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM shop.t",
        "SELECT id, * EXCEPT (n) FROM shop.t",
        "SELECT t.* FROM shop.t",
        "SELECT DISTINCT * FROM shop.t",
        "SELECT count(DISTINCT *) FROM shop.t",
        "SELECT struct(*) FROM shop.t",
        "SELECT -- all of it\n * FROM shop.t",
        "SELECT /* all */ * FROM shop.t",
        "SELECT id FROM shop.t NATURAL JOIN shop.u",
        "FROM shop.t",
        "FROM shop.t |> WHERE n > 1",
        "TABLE shop.t",
    ],
)
def test_a_query_for_all_columns_reads_them(text: str) -> None:
    assert read(text) == ALL


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT id FROM shop.t", {"id"}),
        ("SELECT id * 2 AS a, count(*) OVER () FROM shop.t WHERE (`N`) * 3 > 1", {"id", "n"}),
        ("SELECT 2*id, count ( * ) FROM shop.t GROUP BY id", {"id"}),
        ("SELECT s.text FROM shop.t", {"s", "s.text"}),
    ],
)
def test_other_queries_read_what_they_name(text: str, names: set[str]) -> None:
    assert read(text) == {name: ALL[name] for name in names}


def columns_of(query: Query, **types: IcebergType) -> QueryColumns:
    fields = (NestedField(number, name, of) for number, (name, of) in enumerate(types.items()))
    return query_columns(query, dict.fromkeys(("s.t", "s.u"), Schema(*fields)))


def parsed(text: str) -> Query:
    (statement,) = split(text)
    return parse_query(statement, repeatable=True)


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("SELECT id, v AS n FROM s.t", False),
        ("SELECT id, v AS n, n + 1 AS m FROM s.t", True),
        ("SELECT x.n FROM (SELECT v AS n FROM s.t) AS x", False),
        ("SELECT n FROM (SELECT v AS n FROM s.t) AS x", False),
        ("WITH x AS (SELECT v AS n FROM s.t) SELECT n FROM x", False),
        ("SELECT v AS n FROM s.t GROUP BY n", True),
        ("SELECT v AS n FROM s.t ORDER BY n LIMIT 1", True),
        ("SELECT * FROM s.t", False),
        ("SELECT *, v AS n FROM s.t", False),
        ("WITH x AS (SELECT * FROM s.t) SELECT id FROM x", False),
        ("SELECT DISTINCT * FROM s.t", False),
        ("SELECT id FROM (SELECT DISTINCT * FROM s.t)", True),
        ("SELECT id FROM (SELECT * FROM s.t UNION ALL SELECT * FROM s.u)", False),
        ("SELECT id FROM (SELECT * FROM s.t UNION SELECT * FROM s.u)", True),
        ("SELECT id FROM s.t NATURAL JOIN s.u", True),
        ("SELECT id, to_json(struct(*)) AS body FROM s.t", True),
        ("SELECT id, count(*) AS rows FROM s.t GROUP BY id", False),
    ],
)
def test_a_new_column_ends_reading_if_the_query_takes_its_name_for_another_or_needs_all(
    text: str, *, stops: bool
) -> None:
    query = parsed(text)
    before = columns_of(query, id=LongType(), v=LongType())
    after = columns_of(query, id=LongType(), v=LongType(), n=LongType())
    assert bool(differences(query, from_text(to_text(before)), after)) == stops
    assert not differences(query, from_text(to_text(after)), after)


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("SELECT id, f FROM s.t", False),
        ("SELECT * FROM s.t WHERE f > 1 AND id IN (1, 2) OR f IS NULL", False),
        (
            "SELECT id AS a, sum(f), avg(f), max(f) AS m, count(DISTINCT f) FROM s.t GROUP BY id HAVING sum(f) > 1",
            False,
        ),
        ("SELECT id, rank() OVER (PARTITION BY id ORDER BY f) FROM s.t", False),
        ("SELECT t.id, u.f FROM s.t JOIN s.u ON t.f = u.f AND NOT t.id = u.id", False),
        ("SELECT CASE WHEN f > 1 THEN 'a' END FROM s.t", False),
        ("SELECT id * 2 + 1, -id, coalesce(id, 0), abs(id) FROM s.t", False),
        ("SELECT f, sum(f) FILTER (WHERE id > 1), max_by(id, f) FROM s.t GROUP BY ROLLUP (f)", False),
        ("SELECT CASE WHEN id > 1 THEN f ELSE 0 END, lag(f) OVER (ORDER BY id) FROM s.t", False),
        ("SELECT f + 1 FROM s.t", True),
        ("SELECT hash(id + 1) FROM s.t", True),
        ("SELECT xxhash64(id) AS h FROM s.t", True),
        ("SELECT id FROM s.t WHERE CAST(f AS STRING) = '0.1'", True),
        ("SELECT id, sum(f * 2) FROM s.t GROUP BY id", True),
        ("SELECT h FROM (SELECT id AS k FROM s.t) JOIN (SELECT hash(k) AS h FROM s.u) ON k = h", True),
        ("SELECT to_json(struct(*)) FROM s.t", True),
    ],
)
def test_a_wider_column_ends_reading_if_the_query_computes_from_it(text: str, *, stops: bool) -> None:
    query = parsed(text)
    before = columns_of(query, id=IntegerType(), f=FloatType())
    after = columns_of(query, id=LongType(), f=DoubleType())
    assert bool(differences(query, from_text(to_text(before)), after)) == stops


@pytest.mark.parametrize(
    "condition", ["day >= 'today'", "t.day BETWEEN 'yesterday' AND ('Tomorrow')", "'now UTC' > at", "at IN ('now')"]
)
def test_a_date_that_is_compared_with_text_for_which_spark_reads_the_clock_is_refused(condition: str) -> None:
    query = parsed(f"SELECT word FROM s.t WHERE {condition}")
    fields = [("word", StringType()), ("day", DateType()), ("at", TimestampType())]
    schema = Schema(*(NestedField(1 + number, name, of) for number, (name, of) in enumerate(fields)))
    with pytest.raises(DefinitionError, match="depends on the clock") as refused:
        query.uses.refuse_clock([schema])
    assert refused.value.code == "query-clock"
    parsed("SELECT 'today' AS x FROM s.t WHERE word = 'today' AND upper(day) <> 'now'").uses.refuse_clock([schema])


def test_columns_stored_without_their_table_are_taken_once_and_then_know_it() -> None:
    now: QueryColumns = {"s.t": {"id": 1, TABLE_UUID: "a"}}
    stored: QueryColumns = {"s.t": {"id": 1}}
    assert (replaced_tables(stored, now), differences("s.t", stored, now)) == ([], "")
    assert replaced_tables(joined(stored, now), {"s.t": {"id": 1, TABLE_UUID: "b"}}) == ["s.t"]
