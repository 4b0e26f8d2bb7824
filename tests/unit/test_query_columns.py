"""The columns of its tables that a query reads, by their field ids."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from lakehold.subscribe.query_columns import query_columns
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
