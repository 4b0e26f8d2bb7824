"""A lake over a directory of Debezium messages that tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from tests.debezium_messages import Topic

COLUMNS: dict[str, dict[str, Any]] = {"id": {"type": "int64"}, "name": {"type": "string"}, "n": {"type": "int32"}}

both = pytest.mark.parametrize("envelope", ["DEBEZIUM", "DEBEZIUM UPSERT"])
few_and_many = pytest.mark.parametrize("settings", [{}, {"driver_read_max_records": 0}], ids=["in-driver", "by-spark"])

_EACH = [("DEBEZIUM", {}), ("DEBEZIUM UPSERT", {"driver_read_max_records": 0})]
_OTHERS = [("DEBEZIUM", {"driver_read_max_records": 0}), ("DEBEZIUM UPSERT", {})]

each_once = pytest.mark.parametrize(
    ("envelope", "settings"), [*_EACH, *(pytest.param(*other, marks=pytest.mark.soak) for other in _OTHERS)], ids=str
)
"""Run a test with each envelope and each reader once; `make soak` has the other pairs."""


def row(id_: int, name: str | None = "a", n: int | None = 0) -> dict[str, Any]:
    return {"id": id_, "name": name, "n": n}


class Shop:
    """A source over a directory, with tables over topics that the tests write."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        self.directory = directory
        directory.mkdir()
        lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")

    def table(self, topic: Topic, envelope: str, options: str = "") -> None:
        self.lake.sql(
            f"CREATE TABLE s.{topic.name} FROM SOURCE shop (TOPIC '{topic.name}') ENVELOPE {envelope} {options}"
        )

    def ingest(self, *topics: Topic) -> list[BatchReport]:
        for topic in topics:
            topic.write(self.directory)
        return self.lake.ingest("shop")

    def stopped(self, *topics: Topic) -> dict[str, LakeholdError]:
        """Ingest, and return the tables that stopped with their errors."""
        return {name: error for report in self.ingest(*topics) for name, error in report.stopped.items()}

    def rows(self, table: str = "t") -> list[tuple[Any, ...]]:
        return sorted(self.lake.sql(f"SELECT * FROM {self.lake.settings.catalog_name}.s.{table}").rows, key=repr)

    def errors(self) -> list[tuple[Any, ...]]:
        name = self.lake.settings.catalog_name
        return self.lake.sql(
            f"SELECT offset, reason, healed_at IS NOT NULL FROM {name}.mz_catalog.mz_source_errors ORDER BY offset"
        ).rows


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> Shop:
    return Shop(lake, tmp_path / "topics")


@pytest.fixture
def topic() -> Topic:
    return Topic("t", dict(COLUMNS))
