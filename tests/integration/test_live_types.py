"""Values of every type of a real PostgreSQL arrive unchanged, in both formats and envelopes, through a row's whole life."""

from __future__ import annotations

from typing import LiteralString

import pytest

from lakehold.errors import TableStopped
from lakehold.stack.connectors import ValueFormat
from tests.conftest import LakeFactory
from tests.live_source import Column, LiveSource, execute
from tests.postgres_types import COLUMNS, create_statement, insert_statements, update_statements
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_LARGE_COLUMNS = (
    "body text",
    "raw bytea",
    "document jsonb",
    "numbers int[]",
    "larges bigint[]",
    "texts text[]",
    "tokens uuid[]",
    "pictures bytea[]",
    "pairs hstore",
)

_LARGE: tuple[LiteralString, ...] = (
    f"CREATE TABLE large (id int PRIMARY KEY, n int, {', '.join(_LARGE_COLUMNS)})",
    *(f"ALTER TABLE large ALTER COLUMN {column.split()[0]} SET STORAGE EXTERNAL" for column in _LARGE_COLUMNS),
    """INSERT INTO large SELECT id, 0, repeat('body', 3000), decode(repeat('00ff', 4000), 'hex'),
    to_jsonb(repeat('json', 3000)), a, a, a::text[], (SELECT array_agg(md5(i::text)::uuid) FROM unnest(a) AS i),
    ARRAY[decode(repeat('00ff', 4000), 'hex')], hstore('a', repeat('b', 3000))
    FROM generate_series(1, 4) AS id, (SELECT array_agg(i) AS a FROM generate_series(1, 3000) AS i) AS filled""",
)
"""Values that PostgreSQL stores outside of the row, and does not send with an update that leaves them unchanged."""

_LARGE_COMPARED = [
    Column("n"),
    *(Column(column.split()[0]) for column in _LARGE_COLUMNS[:2]),
    Column("document", "{}::text"),
    *(Column(name) for name in ("numbers", "larges", "texts")),
    Column("tokens", "{}::text[]"),
    Column("pictures"),
    Column("pairs", "hstore_to_json({})::text", "replace({}, ':', ': ')"),
]

_CHANGES: tuple[LiteralString, ...] = (
    "UPDATE everything SET small = 5 WHERE id >= 100",
    "DELETE FROM everything WHERE id % 5 = 4",
    "UPDATE everything SET id = id + 1000 WHERE id % 5 = 2",
    "UPDATE large SET n = 1",
    "UPDATE large SET body = 'short', numbers = NULL WHERE id = 2",
    "UPDATE large SET n = 2 WHERE id = 2",
    "DELETE FROM large WHERE id = 3",
)


@pytest.mark.parametrize(
    ("value_format", "read_in_driver"),
    [
        pytest.param("avro", 20_000, id="avro by the driver"),
        pytest.param("json", 0, id="json by spark", marks=pytest.mark.soak),
    ],
)
def test_values_of_every_type_arrive_through_a_life_of_rows(
    make_lake: LakeFactory, database: SourceDatabase, value_format: ValueFormat, read_in_driver: int
) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('happy', 'so-so')", "CREATE EXTENSION hstore", *_LARGE)
    execute(database, [create_statement("everything"), *insert_statements("everything", 0)])
    lake = make_lake(driver_read_max_records=read_in_driver)
    source = LiveSource(lake, database, "everything", "large", value_format=value_format)
    database.execute("ALTER TABLE large REPLICA IDENTITY DEFAULT")
    source.table("classic", "everything", "DEBEZIUM")
    source.table("latest", "everything", "DEBEZIUM UPSERT")
    source.table("large", "large", "DEBEZIUM UPSERT")
    source.catch_up()
    _assert_equal(source)
    types = dict(lake.spark.table(f"{lake.settings.catalog_name}.live.classic").dtypes)
    assert types == {"id": "int", **{c.name: c.lake_type for c in COLUMNS}}

    execute(database, [*insert_statements("everything", 100), *update_statements("everything", 0), *_CHANGES])
    source.catch_up()
    _assert_equal(source)

    database.execute("UPDATE large SET id = 40 WHERE id = 4")
    with pytest.raises(TableStopped, match="lack their values") as stopped:
        source.catch_up()
    assert stopped.value.code == "value-unavailable", "no event has the large values of the new key"
    assert source.rows("large", "id, n, length(body)")[-1] == (4, 1, 12_000)


def _assert_equal(source: LiveSource) -> None:
    columns = [c.compared for c in COLUMNS]
    source.assert_equal("classic", "everything", ["id"], columns)
    source.assert_equal("latest", "everything", ["id"], columns)
    source.assert_equal("large", "large", ["id"], _LARGE_COMPARED)
