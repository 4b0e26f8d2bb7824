"""ENVELOPE NONE: every message adds exactly one row, and no message replaces or deletes one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakehold.failpoints import Point
from lakehold.ingest import batch
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.write import apply
from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import json_record, struct

pytestmark = pytest.mark.spark

ROW = struct("Row", {"page": {"type": "string"}, "ms": {"type": "int32", "optional": True}})


class Clicks:
    """A topic `clicks` of recorded files, and the table `app.clicks` over it."""

    def __init__(self, lake: Lake, directory: Path, table: str = "(page STRING, ms INT)", with_: str = "") -> None:
        self.lake = lake
        self.file = directory / "clicks.jsonl"
        self.offset = 0
        lake.sql(
            f"CREATE SOURCE web FROM FILES '{directory}' FORMAT JSON;"
            f"CREATE TABLE app.clicks {table} FROM SOURCE web (TOPIC 'clicks') ENVELOPE NONE {with_}"
        )

    def ingest(self, *values: Any, key: bytes | None = b'"k"') -> BatchReport:
        """Append messages, JSON unless they are bytes or null, and ingest them in one batch."""
        for value in values:
            content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            recorded_files.append(self.file, [recorded_files.line("clicks", 0, self.offset, content, key)])
            self.offset += 1
        (report,) = self.lake.ingest("web")
        return report

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.lake.sql("SELECT * FROM app.clicks").rows, key=repr)

    @property
    def errors(self) -> list[tuple[int, str, bool]]:
        """Return the offset, the reason and whether it is healed of each error."""
        found = self.lake.sql("SELECT offset, reason, healed_at FROM mz_catalog.mz_source_errors ORDER BY offset").rows
        return [(offset, reason, healed_at is not None) for offset, reason, healed_at in found]


def click(page: str, ms: int | None = None) -> dict[str, Any]:
    return {"page": page, "ms": ms}


@pytest.mark.parametrize("driver_records", [10_000, 0], ids=["in the driver", "by Spark"])
def test_every_message_adds_a_row(make_lake: LakeFactory, tmp_path: Path, driver_records: int) -> None:
    lake = make_lake(driver_read_max_records=driver_records)
    clicks = Clicks(lake, tmp_path / "topics")
    first = clicks.ingest(click("a", 1), click("a", 1), click("b"))
    second = clicks.ingest(click("a", 1), click("c", 3))
    assert not first.stopped
    assert not second.stopped
    assert clicks.rows == [("a", 1), ("a", 1), ("a", 1), ("b", None), ("c", 3)]
    assert [(t.inserted, t.updated, t.deleted, t.repeated) for r in (first, second) for t in r.tables] == [
        (3, 0, 0, 0),
        (2, 0, 0, 0),
    ]
    changes = lake.sql(f"SUBSCRIBE app.clicks AS OF {first.timestamp_ms}").rows
    assert changes == [
        (first.timestamp_ms, 2, "a", 1),
        (first.timestamp_ms, 1, "b", None),
        (second.timestamp_ms, 1, "a", 1),
        (second.timestamp_ms, 1, "c", 3),
    ]
    state = lake.tables.table_state("app.clicks")
    assert state is not None
    assert [int(snapshot.summary["added-records"]) for snapshot in state.history] == [2, 3]
    assert "deleted-records" not in state.history[0].summary
    assert state.table.spec().is_unpartitioned()


def test_a_message_without_a_row_is_an_error_that_no_later_one_heals(lake: Lake, tmp_path: Path) -> None:
    clicks = Clicks(lake, tmp_path / "topics")
    report = clicks.ingest(click("a"), None, b"null", b"{", b"", {"page": "b", "ms": "x"})
    assert not report.stopped
    clicks.ingest(click("c"))
    assert clicks.rows == [("a", None), ("c", None)]
    assert clicks.errors == [
        (1, "null-value", False),
        (2, "null-value", False),
        (3, "undecodable-value", False),
        (4, "empty-value", False),
        (5, "undecodable-value", False),
    ]
    assert lake.batches.readers("web")["main"].tables["app.clicks"].open_errors == 5


def test_unreadable_keys_are_ignored(lake: Lake, tmp_path: Path) -> None:
    clicks = Clicks(lake, tmp_path / "topics")
    clicks.ingest(click("a"), key=b'{"id": 1}')
    clicks.ingest(click("b"), key=b"")
    clicks.ingest(click("c"), key=None)
    assert clicks.rows == [("a", None), ("b", None), ("c", None)]
    assert clicks.errors == []


def test_columns_come_from_the_schema_and_evolve(lake: Lake, tmp_path: Path) -> None:
    clicks = Clicks(lake, tmp_path / "topics", table="")
    assert clicks.ingest(None).tables[0].errors == 1
    assert lake.tables.table_state("app.clicks") is None
    clicks.ingest(json_record(ROW, click("a", 1)))
    wider = struct("Row", {"page": {"type": "string"}, "ms": {"type": "int64"}, "by": {"type": "string"}})
    clicks.ingest(json_record(wider, {"page": "b", "ms": 2**40, "by": "x"}))
    assert clicks.rows == [("a", 1, None), ("b", 2**40, "x")]


def test_the_first_bad_message_stops_a_table_that_fails_on_errors(lake: Lake, tmp_path: Path) -> None:
    clicks = Clicks(lake, tmp_path / "topics", with_="WITH (ON ERROR = 'fail')")
    assert [error.code for error in clicks.ingest(click("a"), None).stopped.values()] == ["bad-input"]


def test_history_holds_checks_and_maintenance_work_without_a_key(lake: Lake, tmp_path: Path) -> None:
    clicks = Clicks(lake, tmp_path / "topics")
    first = clicks.ingest(click("a"), click("a"))
    lake.sql("CREATE HOLD h ON app.clicks")
    for number in range(9):
        clicks.ingest(click("b", number))
    lake.sql("ALTER TABLE app.clicks SET (RETAIN HISTORY = '1 millisecond')")
    assert lake.check("app.clicks").success
    (report,) = [report for report in lake.maintain() if report.table == "app.clicks"]
    assert report.error is None
    assert report.rewritten
    assert lake.sql(f"SELECT * FROM app.clicks AS OF {first.timestamp_ms}").rows == [("a", None)] * 2
    assert len(clicks.rows) == 11
    clicks.ingest(click("a"))
    assert len(clicks.rows) == 12
    upserts = lake.sql("SUBSCRIBE app.clicks ENVELOPE UPSERT (KEY (page))").rows
    assert [row[1:3] for row in upserts] == [("key_violation", "a"), ("key_violation", "b")]


def test_a_table_without_a_key_is_shown_as_created_and_joins_a_running_source(lake: Lake, tmp_path: Path) -> None:
    clicks = Clicks(lake, tmp_path / "topics")
    clicks.ingest(click("a"), click("a"))
    lake.sql("CREATE TABLE app.later (page STRING) FROM SOURCE web (TOPIC 'clicks') INCLUDE OFFSET ENVELOPE NONE")
    (shown,) = lake.sql("SHOW CREATE TABLE app.later").rows
    assert shown[-1].splitlines() == [
        "CREATE TABLE app.later",
        "  (page string)",
        "  FROM SOURCE web (TOPIC 'clicks')",
        "  INCLUDE OFFSET",
        "  ENVELOPE NONE",
    ]
    assert ("app", "later", "web", "clicks", "none", []) in lake.sql("SHOW TABLES").rows
    lake.ingest("web")
    assert lake.sql("SELECT * FROM app.later ORDER BY offset").rows == [("a", 0), ("a", 1)]
    assert len(clicks.rows) == 2
    clicks.ingest(click("b"))
    assert lake.sql("SELECT * FROM app.later ORDER BY offset").rows == [("a", 0), ("a", 1), ("b", 2)]


class Killed(BaseException):
    """The death of the process, which the isolation of tables must not catch."""


def die() -> None:
    raise Killed


@pytest.mark.parametrize(
    "point",
    [
        "after-errors",
        "after-merge",
        *(
            pytest.param(point, marks=pytest.mark.soak)
            for point in ("after-intent", "after-evolution", "before-commit")
        ),
    ],
)
def test_a_killed_batch_adds_its_messages_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: Point
) -> None:
    """Kill the first batch, which creates the table, and a later one, which adds rows to it."""
    clicks = Clicks(lake, tmp_path / "topics")
    for batch_rows in (2, 4):
        with monkeypatch.context() as patched:
            for module in (apply, batch):
                patched.setattr(module, "failpoint", lambda here: die() if here == point else None)
            with pytest.raises(Killed):
                clicks.ingest(click("a"), click("a"), None)
        assert sum(report.records for report in lake.ingest("web")) == 3
        assert clicks.rows == [("a", None)] * batch_rows
        assert len(clicks.errors) == batch_rows // 2
