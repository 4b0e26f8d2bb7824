"""Tables with a hand-made history, to compare the output of SUBSCRIBE with Spark's view of each snapshot."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from lakehold.lake import Lake
from lakehold.sql.result import Result
from tests.conftest import LakeFactory

NAME = "shop.t"

Diff = tuple[Any, ...]
"""`mz_diff`, then the row's columns."""


@dataclass(frozen=True)
class Mode:
    """A way to write a table's files, such as copy-on-write in format version 2."""

    name: str
    format_version: int
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def delete_format(self) -> str | None:
        """Return the format of the table's delete files; None if deletes rewrite data files."""
        if not self.properties:
            return None
        return "PUFFIN" if self.format_version > 2 else "PARQUET"


def exact(value: Any) -> str:
    """Format a value so that values and types stay distinct, NaN and -0.0 included. The entries of a map have no order."""
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{exact(key)}: {exact(of)}' for key, of in value.items()))}}}"
    if isinstance(value, Row):
        return f"Row({', '.join(f'{name}={exact(of)}' for name, of in value.asDict().items())})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(exact, value))}]"
    return f"{type(value).__name__} {value!r}"


def _merge_on_read(**more: str) -> dict[str, str]:
    return {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")} | more


COPY_V1 = Mode("copy-on-write-v1", 1)
COPY_V2 = Mode("copy-on-write-v2", 2)
COPY_V3 = Mode("copy-on-write-v3", 3)
FILE_V2 = Mode("deletes-of-files-v2", 2, _merge_on_read(**{"write.delete.granularity": "file"}))
PARTITION_V2 = Mode("deletes-of-partitions-v2", 2, _merge_on_read(**{"write.delete.granularity": "partition"}))
VECTORS_V3 = Mode("deletion-vectors-v3", 3, _merge_on_read())
MODES = [COPY_V1, COPY_V2, COPY_V3, FILE_V2, PARTITION_V2, VECTORS_V3]


def written_by(*modes: Mode, soak: Sequence[Mode] = ()) -> pytest.MarkDecorator:
    """Run a test on tables written in each of `modes`, and in those of `soak` where runs may take longer."""
    later = [pytest.param(mode, marks=pytest.mark.soak) for mode in soak]
    return pytest.mark.parametrize("mode", [*modes, *later], ids=str)


@dataclass(frozen=True)
class Version:
    """A snapshot that the table showed from `mz_timestamp` onward."""

    mz_timestamp: int
    snapshot_id: int


class WrittenTable:
    """The table `shop.t` of a lake, written by statements that call it `{t}`.

    Args:
        make_lake: Opens lakes.
        where: Arguments of `connect` that say where the lake is; by default in a new directory.
    """

    def __init__(self, make_lake: LakeFactory, **where: str) -> None:
        self.lake = make_lake(foreign_lag_ms=50, **where)
        self._make_lake = make_lake
        self.lake.sql("CREATE NAMESPACE IF NOT EXISTS shop")

    @classmethod
    def created(cls, make_lake: LakeFactory, mode: Mode, columns: str, partitioned_by: str = "") -> WrittenTable:
        """Create a table without rows."""
        table = cls(make_lake)
        table.create(mode, columns, partitioned_by)
        return table

    def create(self, mode: Mode, columns: str, partitioned_by: str = "", **more: str) -> None:
        properties = {"format-version": str(mode.format_version), **mode.properties, **more}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        clause = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
        self.run(f"CREATE TABLE {{t}} ({columns}) USING iceberg {clause} TBLPROPERTIES ({listed})")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.lake.sql(statement.replace("{t}", NAME))

    def call(self, procedure: str, arguments: str = "") -> None:
        """Call one of Iceberg's procedures on the table."""
        self.lake.sql(f"CALL system.{procedure}(table => '{NAME}'{arguments and ', '}{arguments})")

    def reading_by_spark(self) -> Lake:
        """Return the same lake, but with Spark reading even the smallest diff."""
        settings = self.lake.settings
        return self._make_lake(
            Path(settings.warehouse), catalog_name=settings.catalog_name, foreign_lag_ms=50, driver_diff_max_rows=0
        )

    @property
    def versions(self) -> list[Version]:
        """List the snapshots that were current, oldest first, with strictly increasing timestamps."""
        found: list[Version] = []
        for entry in self.lake.catalog.load_table(NAME).history():
            last_ms = found[-1].mz_timestamp if found else 0
            found.append(Version(max(entry.timestamp_ms, last_ms + 1), entry.snapshot_id))
        return found

    @property
    def delete_formats(self) -> set[str]:
        """Return the formats of all delete files in the history."""
        return {row[0] for row in self.lake.sql(f"SELECT DISTINCT file_format FROM {NAME}.all_delete_files").rows}

    def subscribe(self, clauses: str, lake: Lake | None = None) -> Result:
        return (lake or self.lake).sql(f"SUBSCRIBE {NAME} {clauses}")

    def changes(self, lake: Lake | None = None) -> list[list[Diff]]:
        """Return the diffs of each version, after checking that their sums are what Spark shows of every snapshot."""
        versions = self.versions
        diffs: dict[int, list[Diff]] = defaultdict(list)
        for row in self.subscribe(f"AS OF {versions[0].mz_timestamp}", lake).rows:
            diffs[row[0]].append(row[1:])
        assert diffs.keys() <= {version.mz_timestamp for version in versions}
        state: Counter[str] = Counter()
        for version in versions:
            for diff in diffs[version.mz_timestamp]:
                state[exact(diff[1:])] += diff[0]
            assert state == Counter(map(exact, self.rows(version.snapshot_id))), version
        return [diffs[version.mz_timestamp] for version in versions]

    def rows(self, snapshot_id: int) -> list[tuple[Any, ...]]:
        """Read the rows of a snapshot in the table's current columns, which Iceberg supports only for branches."""
        table = self.lake.catalog.load_table(NAME)
        snapshot = table.snapshot_by_id(snapshot_id)
        if snapshot is not None and snapshot.schema_id == table.metadata.current_schema_id:
            return self.lake.sql(f"SELECT * FROM {NAME} VERSION AS OF {snapshot_id}").rows
        branch = f"at_{snapshot_id}"
        self.run(f"ALTER TABLE {{t}} CREATE BRANCH IF NOT EXISTS {branch} AS OF VERSION {snapshot_id}")
        return self.lake.sql(f"SELECT * FROM {NAME} VERSION AS OF '{branch}'").rows
