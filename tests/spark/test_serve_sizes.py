"""The sizes of what a served lake sends: the driver of ADBC takes no message over 16 MiB unless an option says so."""

from __future__ import annotations

from collections.abc import Iterator

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakehold.serve.messages import message
from lakehold.serve.serving import Door, served
from tests.conftest import LakeFactory
from tests.flight_sql import FlightSqlClient
from tests.published_shop import Shop
from tests.runnable_pages import checked

pytestmark = pytest.mark.spark

PAGE = "docs/how-to/connect-from-other-languages.md"
MIB = 1 << 20
SIZES = [*[MIB] * 20, 1, 10 * MIB, 1]


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    shop = Shop(make_lake)
    shop.write(*((number, "x" * size) for number, size in enumerate(SIZES)))
    return shop


@pytest.fixture
def address(shop: Shop) -> Iterator[str]:
    with served(shop.lake, Door()) as address:
        yield address


def read(address: str, text: str, **options: str) -> pa.Table:
    with flight_sql.connect(address, options, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetch_arrow_table()


def test_adbc_reads_any_number_of_wide_rows(address: str, shop: Shop) -> None:
    end = shop.lake.catalog.load_table("shop.t").metadata.snapshot_log[-1].timestamp_ms + 1
    for text in (
        "SELECT * FROM shop.t ORDER BY id",
        "SELECT * FROM shop.t ORDER BY id AS OF LATEST",
        f"SUBSCRIBE shop.t WITHIN TIMESTAMP ORDER BY id AS OF EARLIEST UP TO {end}",
    ):
        found = read(address, text)
        assert pc.utf8_length(found.column("v")).to_pylist() == SIZES, text
        assert max(chunk.nbytes for chunk in found.column("v").chunks) < 11 * MIB, text


def test_a_row_that_is_wider_is_read_with_the_option_on_the_page(address: str) -> None:
    text = f"SELECT repeat('x', {17 * MIB}) AS wide"
    with pytest.raises(flight_sql.Error, match="larger than max"):
        read(address, text)
    (option, value) = checked(PAGE, __file__)[0].split("=")
    assert read(address, text, **{option: value.strip()}).column("wide")[0].as_py() == "x" * (17 * MIB)


def test_a_long_list_of_tables_with_their_columns_is_sent_in_parts(address: str, shop: Shop) -> None:
    columns = pa.schema([pa.field(f"c{number}_{'x' * 500}", pa.int64()) for number in range(4_000)])
    for number in range(2):
        shop.lake.catalog.create_table(f"shop.wide_{number}", columns)
    client = FlightSqlClient(address)
    reader = client.reader(message("CommandGetTables", db_schema_filter_pattern="shop", include_schema=True))
    sizes = [batch.data.nbytes for batch in reader]
    client.close()
    assert len(sizes) > 1
    assert sum(sizes) > 4 * MIB
