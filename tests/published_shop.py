"""A lake with a table of a foreign writer and a subscription to it, and the output as a reader sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from lakehold.failpoints import Point
from lakehold.lake import Lake
from lakehold.publish import publisher
from lakehold.state.holds import Hold
from lakehold.times import now_ms
from tests.conftest import LakeFactory

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
DAY_MS = 24 * 60 * 60 * 1000

Row = dict[str, Any]


class Killed(BaseException):
    """The death of the process: no handler for errors catches it."""


class Shop:
    """A lake with the table `shop.t` of a foreign writer, and the output of a subscription to it.

    Args:
        make_lake: Makes the lake.
        foreign_lag_ms: How long a commit may take while another thread reads; no time where each waits for the other.
        settings: Further settings.
    """

    def __init__(self, make_lake: LakeFactory, foreign_lag_ms: int = 0, **settings: object) -> None:
        self.lake: Lake = make_lake(foreign_lag_ms=foreign_lag_ms, lease_ms=60_000, **settings)
        where = self.lake.settings
        self.again: Callable[[], Lake] = lambda: make_lake(
            where.warehouse_path, catalog_name=where.catalog_name, foreign_lag_ms=foreign_lag_ms
        )
        self.lake.catalog.create_namespace("shop")
        self.lake.catalog.create_table("shop.t", COLUMNS)

    def write(self, *rows: tuple[int, str | None], name: str = "shop.t") -> None:
        """Set the rows of ids in one commit, or delete them with None."""
        table = self.lake.catalog.load_table(name)
        kept = [row for row in table.scan().to_arrow().to_pylist() if row["id"] not in {id_ for id_, _ in rows}]
        new = [{"id": id_, "v": v} for id_, v in rows if v is not None]
        before = now_ms()
        write = table.append if table.current_snapshot() is None else table.overwrite
        write(pa.Table.from_pylist([*kept, *new], COLUMNS))
        while now_ms() == before:
            pass

    def subscribe(self, clauses: str = "", options: str = "", into: str = "bi.out") -> None:
        self.lake.sql(f"CREATE SUBSCRIPTION s INTO {into} {options} AS SUBSCRIBE shop.t {clauses}")

    def output(self, name: str = "bi.out") -> list[Row]:
        rows: list[Row] = self.lake.catalog.load_table(name).scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: (row["mz_timestamp"], row.get("id") or 0))

    def lapse(self) -> None:
        """Move the only hold, that of a subscription or a view, past what it has read."""
        (hold,) = self.lake.holds.all()
        self.lake.subscriptions.holds.advance(hold.name, self.lake.timelines.of(["shop.t"])["shop.t"].upper_ms - 1)

    def expected(self, clauses: str = "") -> list[Row]:
        """Return the output of the whole SUBSCRIBE, from the output table's first timestamp to its position."""
        first = min(row["mz_timestamp"] for row in self.output())
        found = self.lake.sql(f"SUBSCRIBE shop.t {clauses} AS OF {first} UP TO {self.position}")
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        return sorted(rows, key=lambda row: (row["mz_timestamp"], row.get("id") or 0))

    def counted(self, rows: list[Row]) -> Counter[str]:
        return Counter(repr(sorted(row.items())) for row in rows)

    @property
    def position(self) -> int:
        return int(self.lake.catalog.load_table("bi.out").properties["lakehold.position"])

    @property
    def hold(self) -> Hold:
        return self.lake.holds.hold("subscription_s")

    def state(self) -> str:
        (row,) = self.lake.sql("SHOW SUBSCRIPTIONS").rows
        return str(row[3])


def publish_and_die(
    lake: Lake, name: str, monkeypatch: pytest.MonkeyPatch, point: Point, module: ModuleType = publisher
) -> None:
    """Publish a subscription or a view in a process that dies at a failpoint of a module."""

    def failpoint(here: Point) -> None:
        if here == point:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(module, "failpoint", failpoint)
        with pytest.raises(Killed):
            lake.publish(name)
