"""Tables whose snapshots have times that a test chooses: foreign ones written by PyIceberg, and one fed by a source in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog

from lakehold.definitions import Envelope, Format, FormatType, Source, Table
from lakehold.iceberg.data_tables import DataTables
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import TopicPartition
from lakehold.model.readers import Intent, Readers, Stop, TableProgress
from lakehold.state.batch_protocol import Batch, BatchStore
from lakehold.state.objects import DefinitionStore
from lakehold.state.store import MemoryState
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.timelines import Timelines

START_MS = 1_700_000_000_000
LAG_MS = 1_000
FED, FOREIGN = "shop.orders", "shop.rates"
P0 = TopicPartition("orders", 0)
SCHEMA = pa.schema([("id", pa.int64())])


@dataclass
class Clock:
    """The only clock of a test, read by lakehold and put in place of PyIceberg's `time` and `datetime`."""

    ms: int = 0
    waited_ms: list[int] = field(default_factory=list)

    def __call__(self) -> int:
        return START_MS + self.ms

    def time(self) -> float:
        return (self() + 0.5) / 1_000

    def now(self) -> datetime:
        return datetime.fromtimestamp(self() / 1_000, UTC)

    def wait(self, seconds: float) -> None:
        self.waited_ms.append(round(seconds * 1_000))
        self.ms += self.waited_ms[-1]


class Shop:
    """A table fed by the source `feed`, and tables of foreign writers."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog, self.clock = catalog, Clock()
        self.definitions, self.batches = DefinitionStore(MemoryState()), BatchStore(MemoryState(), self.clock)
        tables = DataTables(catalog)
        self.timelines = Timelines(tables, self.definitions, self.batches, LAG_MS, self.clock, self.clock.wait)

    def write(self, name: str, at: int, **summary: object) -> int:
        """Append a row at a time, and return the snapshot's id."""
        self.clock.ms = at
        properties = {f"lakehold.{key}": str(value) for key, value in summary.items()}
        table = self.catalog.create_table_if_not_exists(name, SCHEMA)
        table.append(pa.table({"id": [at]}, SCHEMA), snapshot_properties=properties)
        return self.head(name)

    def head(self, name: str) -> int:
        current = self.catalog.load_table(name).current_snapshot()
        assert current is not None
        return current.snapshot_id

    def set_back(self, name: str, snapshot_id: int, at: int) -> None:
        self.clock.ms = at
        self.catalog.load_table(name).manage_snapshots().set_current_snapshot(snapshot_id).commit()

    def expire(self, name: str, *snapshot_ids: int) -> None:
        self.catalog.load_table(name).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()

    def feed(self) -> None:
        """Define the source and its table."""
        source = Source("feed", Format(FormatType.JSON), path="topics")
        table = Table("shop", "orders", source="feed", topic="orders", envelope=Envelope.UPSERT)
        self.definitions.change(lambda d: d.with_entry(Entry("s", source, "", 0)).with_entry(Entry("t", table, "", 0)))

        def reading(readers: Readers) -> Readers:
            return {"main": replace(readers["main"], tables={FED: TableProgress(object_id="t")}, position={P0: 0})}

        self.batches.acquire("feed", "me", START_MS + 1_000_000)
        self.batches.change_readers("feed", "me", reading)

    def begin(self, at: int) -> Intent:
        intent = Intent("feed", "main", START_MS + at, {P0: at}, frozenset([FED]))
        self.batches.begin(intent, "me")
        return intent

    def commit(self, intent: Intent, since: int | None) -> None:
        self.clock.ms = max(self.clock.ms, intent.mz_timestamp - START_MS)
        before = self.batches.readers("feed")["main"].tables[FED]
        progress = replace(before, since_ms=None if since is None else START_MS + since)
        row = Batch("feed", "main", intent.mz_timestamp, {P0: 0}, intent.end)
        self.batches.commit(intent, "me", {FED: progress}, row)

    def batch(self, at: int, *, steps: int = 1, since: int | None = 100) -> list[int]:
        """Run a batch at a time, with commits 10 ms apart, and return its snapshots."""
        intent = self.begin(at)
        made = [
            self.write(FED, at + 10 * step, source="feed", timestamp=intent.mz_timestamp, step=step)
            for step in range(1, steps + 1)
        ]
        self.commit(intent, since)
        return made

    def record_stop(self, begin: int, end: int) -> None:
        """Record that the fed table was stopped at `begin`, and in sync with the others of its source again at `end`."""

        def with_stop(readers: Readers) -> Readers:
            main = readers["main"]
            progress = main.tables[FED]
            stops = (*progress.stops, Stop(START_MS + begin, START_MS + end))
            return {**readers, "main": replace(main, tables={FED: replace(progress, stops=stops)})}

        self.batches.change_readers("feed", "me", with_stop)

    def timeline(self, name: str) -> Timeline:
        return self.timelines.of([name])[name]

    def versions(self, name: str) -> list[tuple[int, int]]:
        """Return time and snapshot of each version."""
        return shown(self.timeline(name))


def shown(timeline: Timeline) -> list[tuple[int, int]]:
    return [(v.mz_timestamp - START_MS, v.snapshot_id) for v in timeline.versions if v.remains]


def window(timeline: Timeline) -> tuple[int, int]:
    return timeline.since_ms - START_MS, timeline.upper_ms - START_MS


def at(timeline: Timeline, ms: int) -> int | None:
    version = timeline.at(START_MS + ms)
    return version.snapshot_id if version is not None else None
