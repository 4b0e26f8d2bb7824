"""Names that do not exist: each error suggests the one that was probably meant, or says where the names are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.definitions import (
    Connection,
    ConnectionType,
    Envelope,
    Format,
    FormatType,
    MaterializedView,
    Source,
    Subscription,
    Table,
)
from lakehold.errors import LakeholdError
from lakehold.lake import Lake, connect
from lakehold.model.lake_definitions import AnyEntry, Entry

CASES = [
    tuple(line.split(" -> "))
    for line in Path(__file__).with_name("nearest_names.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    # No server is there: a statement that needs Spark fails.
    with connect(
        str(tmp_path_factory.mktemp("named") / "lake"), role="analyst", spark_remote="sc://127.0.0.1:1"
    ) as lake:
        entries: list[AnyEntry] = [
            Entry("k", Connection("kafka", ConnectionType.KAFKA, {}), "", 0),
            Entry("s", Source("shop", Format(FormatType.JSON), path="messages"), "", 0),
            Entry("t", Table("shop", "orders", source="shop", topic="orders", envelope=Envelope.UPSERT), "", 0),
            Entry(
                "c",
                Subscription("order_changes", "shop.order_changes", "SUBSCRIBE shop.orders", ("shop.orders",)),
                "",
                0,
            ),
            Entry("v", MaterializedView("shop", "totals", "SELECT 1", ("shop.orders",)), "", 0),
        ]
        lake.definitions.change(lambda defined: defined.with_entries(entries))
        lake.catalog.create_namespace("shop")
        lake.catalog.create_table("shop.wages", pa.schema([("id", pa.int64())]))
        lake.sql("CREATE HOLD month_end ON shop.orders; CREATE ROLE analyst SUPERUSER")
        yield lake


@pytest.mark.parametrize(("text", "hint"), CASES, ids=[text for text, _ in CASES])
def test_a_statement_with_a_wrong_name_is_answered_with_the_right_one(lake: Lake, text: str, hint: str) -> None:
    with pytest.raises(LakeholdError) as raised:
        lake.sql(text)
    assert raised.value.hint == hint, raised.value


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda lake: lake.ingest("shopp"), 'Did you mean "shop"?'),
        (lambda lake: lake.publish("shop.totls"), 'Did you mean "shop.totals"?'),
        (lambda lake: lake.publish("order_change"), 'Did you mean "order_changes"?'),
        (lambda lake: lake.backfill(["shop.oders"]), 'Did you mean "shop.orders"?'),
        (lambda lake: lake.check("shop.ordrs"), 'Did you mean "shop.orders"?'),
        (lambda lake: lake.check("shop.wags"), 'Did you mean "shop.wages"?'),
        (lambda lake: lake.verify("shop.order", connection="kafk", upstream="a.b"), 'Did you mean "kafka"?'),
        (lambda lake: lake.holds.hold("month_ends"), 'Did you mean "month_end"?'),
        (lambda _: connect(warehous="x"), 'Did you mean "warehouse"?'),
    ],
)
def test_a_call_with_a_wrong_name_is_answered_with_the_right_one(
    lake: Lake, call: Callable[[Lake], object], hint: str
) -> None:
    with pytest.raises(LakeholdError) as raised:
        call(lake)
    assert raised.value.hint == hint, raised.value
