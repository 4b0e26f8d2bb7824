"""A lake without Spark in which a source feeds tables, and another program writes one: its batches have only a state and rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lakehold.definitions import Envelope, Format, FormatType, Source, Table
from lakehold.lake import Lake, connect
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import TopicPartition
from lakehold.model.readers import Intent, ReaderError, Readers, TableProgress
from lakehold.overview import Overview, gather
from lakehold.overview.facts import TableFacts
from lakehold.state.batch_protocol import Batch
from lakehold.times import now_ms

P0 = TopicPartition("orders", 0)
SCHEMA = pa.schema([("id", pa.int64())])


class Shop:
    """A lake in which the source `feed` feeds `shop.orders` and `shop.stock`, and another program writes `shop.rates`."""

    def __init__(self, warehouse: Path) -> None:
        self.lake: Lake = connect(str(warehouse), foreign_lag_ms=0)
        self.lake.catalog.create_namespace("shop")
        self.declare(Entry("s", Source("feed", Format(FormatType.JSON), path="topics"), "", 0))
        for name in ("orders", "stock"):
            table = Table("shop", name, source="feed", topic=name, envelope=Envelope.UPSERT)
            self.declare(Entry(f"id-{name}", table, "", 0))
        self.write("shop.rates")

    def declare(self, entry: Entry[Source] | Entry[Table]) -> None:
        self.lake.definitions.change(lambda defined: defined.with_entry(entry))

    def write(self, name: str, **summary: str) -> None:
        table = self.lake.catalog.create_table_if_not_exists(name, SCHEMA)
        table.append(pa.table({"id": [1, 2]}, SCHEMA), snapshot_properties=summary)

    def reads(self) -> None:
        tables = {f"shop.{name}": TableProgress(object_id=f"id-{name}") for name in ("orders", "stock")}

        def reading(readers: Readers) -> Readers:
            return {"main": replace(readers["main"], tables=tables, position={P0: 0})}

        self.lake.batches.acquire("feed", "me", now_ms() + 60_000)
        self.lake.batches.change_readers("feed", "me", reading)

    def begin(self, ms: int) -> Intent:
        intent = Intent("feed", "main", ms, {P0: ms}, frozenset())
        self.lake.batches.begin(intent, "me")
        return intent

    def batch(self, ms: int, **stopped: ReaderError) -> None:
        intent = self.begin(ms)
        self.write("shop.orders", **{"lakehold.source": "feed", "lakehold.timestamp": str(ms)})
        tables = {
            "shop.orders": TableProgress(since_ms=ms, open_errors=2, object_id="id-orders"),
            "shop.stock": TableProgress(object_id="id-stock"),
        }
        row = Batch("feed", "main", ms, {P0: 0}, intent.end, committed_at_ms=ms + 1)
        of = {f"shop.{name}": error for name, error in stopped.items()}
        self.lake.batches.commit(intent, "me", tables, row, of)

    def overview(self) -> Overview:
        return gather(self.lake)

    def table(self, name: str) -> TableFacts:
        return next(facts for facts in self.overview().tables if facts.name == name)
