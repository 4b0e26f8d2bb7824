"""A lake that grows while the work on one of its tables stays the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from lakehold.iceberg import metadata_files
from lakehold.iceberg.metadata_commits import by_file
from lakehold.iceberg.metadata_files import MetadataJson
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog
from lakehold.lake import Lake, connect
from lakehold.maintenance.procedures import ORPHANS_SEARCHED_PROPERTY
from lakehold.model.readers import MAIN_READER, Readers
from lakehold.model.summary_keys import OBJECT_ID
from lakehold.overview import gather
from lakehold.times import now_ms
from tests import recorded_files

CHANGING = "shop.changing"
"""The table to which all measured changes go."""

_SOURCE, _LOADED = "changes", CHANGING.rpartition(".")[2]
_TABLES_OF_A_SOURCE = 200
_COPIER = "copies"
_COPIES_WITHIN_MS = 600_000

Work = Callable[[Lake], object]


@dataclass
class GrowingLake:
    """A lake with the table `shop.changing` of `(k BIGINT, v STRING)`, and others that never change.

    Args:
        spark: The session of all lakes.
        place: The arguments of `connect`.
        directory: Folder of the recorded messages.
    """

    spark: SparkSession
    place: Mapping[str, Any]
    directory: Path
    _offset: int = field(default=0, init=False)
    _sources: int = field(default=0, init=False)
    _last_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        with self.opened() as lake:
            self._feed(lake, _SOURCE, _LOADED)
            _mark_searched(lake)

    @property
    def works(self) -> dict[str, Work]:
        """Return what is measured, by name; `batch` ingests what is recorded."""
        subscribe = f"SUBSCRIBE {CHANGING} WITH (SNAPSHOT = false) AS OF {{}}"
        return {
            "batch": self.ingest,
            "SUBSCRIBE of a change": lambda lake: lake.sql(subscribe.format(self._last_ms - 1)),
            "SELECT": lambda lake: lake.sql(f"SELECT * FROM {CHANGING}"),
            "status page": gather,
            "maintain of a table": lambda lake: lake.maintain([CHANGING]),
            "maintain": lambda lake: lake.maintain(),
        }

    @contextmanager
    def opened(self) -> Iterator[Lake]:
        """Open the lake with empty caches."""
        with connect(spark=self.spark, **self.place) as lake:
            yield lake

    def add_tables(self, count: int) -> None:
        """Add tables with a row each, which never change, in sources of their own."""
        with self.opened() as lake:
            while count > 0:
                self._sources += 1
                source = f"quiet{self._sources}"
                names = [f"{source}_{number}" for number in range(min(count, _TABLES_OF_A_SOURCE))]
                self._feed(lake, source, names[0])
                self._copy(lake, source, names[0], names[1:])
                count -= len(names)
            _mark_searched(lake)

    def add_neighbours(self, count: int) -> None:
        """Add tables with a row each, which never change, in the source of `shop.changing`."""
        with self.opened() as lake:
            self._copy(lake, _SOURCE, _LOADED, [f"beside{number}" for number in range(count)])

    def change(self, lake: Lake, key: int = 0) -> None:
        """Set the row of a key in a batch of its own."""
        self.record(key)
        self.ingest(lake)

    def record(self, key: int = 0) -> None:
        """Record a new row of a key, without ingesting it."""
        self._write(_SOURCE, _LOADED, key)

    def ingest(self, lake: Lake) -> None:
        """Ingest what is recorded."""
        (report,) = lake.ingest(_SOURCE)
        assert not report.stopped, report.stopped
        assert report.tables
        self._last_ms = report.timestamp_ms

    def _feed(self, lake: Lake, source: str, name: str) -> None:
        """Create a source with a table, and load a row."""
        lake.sql(f"CREATE SOURCE {source} FROM FILES '{self.directory / source}' FORMAT JSON")
        lake.sql(_creating(source, name))
        self._write(source, name, 0)
        (report,) = lake.ingest(source)
        assert report.tables, report.stopped

    def _copy(self, lake: Lake, source: str, loaded: str, names: Sequence[str]) -> None:
        """Make tables that look as if batches had loaded them like `loaded`: to load a thousand would take an hour."""
        if names:
            lake.sql(f"BEGIN; {'; '.join(_creating(source, name) for name in names)}; COMMIT")
            _copy_tables(lake, source, loaded, names)

    def _write(self, source: str, topic: str, key: int) -> None:
        row = json.dumps({"k": key, "v": f"at {self._offset}"}).encode()
        line = recorded_files.line(topic, 0, self._offset, row, json.dumps({"k": key}).encode())
        recorded_files.append(self.directory / source / "changes.jsonl", [line])
        self._offset += 1


def _creating(source: str, name: str) -> str:
    return (
        f"CREATE TABLE shop.{name} (k BIGINT, v STRING) FROM SOURCE {source} (TOPIC '{name}') KEY (k) "
        "ENVELOPE UPSERT WITH (BUCKETS = 1)"
    )


def _copy_tables(lake: Lake, source: str, loaded: str, names: Sequence[str]) -> None:
    """Make Iceberg tables that share the files of `loaded`, and give them its progress. Nothing reads or changes the files."""
    catalog, defined = lake.catalog, lake.definitions.definitions().tables
    assert isinstance(catalog, RememberingSqlCatalog)
    table = catalog.load_table(f"shop.{loaded}")
    file = catalog.file_of(table.name(), table.metadata_location)
    for name in names:
        location = f"{table.location().rpartition('/')[0]}/{name}"
        fields = _with_properties(file.fields, {OBJECT_ID: defined[f"shop.{name}"].object_id})
        fields = {**fields, "location": location, "table-uuid": str(uuid4()), "metadata-log": []}
        of_copy = f"{location}/metadata/{file.location.rpartition('/')[2]}"
        metadata_files.write(table.io, replace(file, location=of_copy, fields=fields))
        catalog.register_table(("shop", name), of_copy)

    def reading(readers: Readers) -> Readers:
        main = readers[MAIN_READER]
        progress = main.tables[f"shop.{loaded}"]
        copies = {f"shop.{name}": replace(progress, object_id=defined[f"shop.{name}"].object_id) for name in names}
        return {MAIN_READER: replace(main, tables={**main.tables, **copies})}

    lake.batches.acquire(source, _COPIER, now_ms() + _COPIES_WITHIN_MS)
    lake.batches.change_readers(source, _COPIER, reading)
    lake.batches.release(source, _COPIER)


def _mark_searched(lake: Lake) -> None:
    """Mark tables as searched for orphans just now, which maintenance does once a day."""
    catalog, searched = lake.catalog, {ORPHANS_SEARCHED_PROPERTY: str(now_ms())}
    assert isinstance(catalog, RememberingSqlCatalog)
    for name in itertools.chain.from_iterable(map(catalog.list_tables, catalog.list_namespaces())):
        table = catalog.load_table(name)
        if ORPHANS_SEARCHED_PROPERTY not in table.properties:
            by_file(catalog, table, None, lambda fields: _with_properties(fields, searched)).commit()


def _with_properties(fields: MetadataJson, properties: Mapping[str, str]) -> MetadataJson:
    return {**fields, "properties": {**fields.get("properties", {}), **properties}}
