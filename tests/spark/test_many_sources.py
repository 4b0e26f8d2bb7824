"""Many sources in one lake: a source with a backlog does not hold up the others, and quiet sources cost no commit."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lakehold.cli.command_output import JsonOutput
from lakehold.cli.ingest import run_ingest
from lakehold.lake import Lake
from lakehold.model.readers import Intent
from lakehold.progress import NoProgress
from lakehold.state.batch_protocol import READERS, BatchStore
from tests.many_sources import LONG, ManySources
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

WITHIN_S = 240


@pytest.fixture
def many(lake: Lake, tmp_path: Path) -> ManySources:
    """Define seven short sources, and a long one, whose batches have ten messages."""
    return ManySources(lake, tmp_path / "messages", 7, 10)


def ingest(lake: Lake, *, follow: bool) -> str:
    """Ingest all sources, as the command does; return its notices."""
    notices = io.StringIO()
    run_ingest(lake, None, JsonOutput(io.StringIO(), notices), NoProgress(), follow=follow)
    return notices.getvalue()


@pytest.mark.parametrize("follow", [False, True])
def test_rows_of_short_sources_are_readable_while_a_batch_of_a_long_one_runs(
    lake: Lake, many: ManySources, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    many.fill(5)
    sent = [many.send(source) for source in many.short]
    had_backlog: list[bool] = []
    begin = BatchStore.begin

    def long_batch(store: BatchStore, intent: Intent, *args: Any) -> None:
        begin(store, intent, *args)
        if intent.source == LONG and not had_backlog:
            wait_for(lambda: many.is_readable(sent), "the short sources", within_s=WITHIN_S)
            had_backlog.append(many.has_backlog())

    monkeypatch.setattr(BatchStore, "begin", long_batch)

    def interrupt() -> None:
        wait_for(lambda: bool(had_backlog), within_s=WITHIN_S)
        os.kill(os.getpid(), signal.SIGINT)

    if follow:
        Thread(target=interrupt).start()
    assert ingest(lake, follow=follow) == ""
    assert had_backlog == [True]
    assert all(lake.sql(f"SELECT count(*) FROM many.{source}").rows == [(2,)] for source in many.short)
    assert many.has_backlog() == follow


def test_a_turn_ends_before_a_backlog_and_the_next_one_goes_on(lake: Lake, many: ManySources) -> None:
    many.fill(2)
    turns = [list(lake.batches_together([LONG], turn_s=0)) for _ in range(3)]
    assert [[report.records for report in turn if hasattr(report, "records")] for turn in turns] == [[10], [10], [1]]
    assert not many.has_backlog()


def test_a_poll_of_a_quiet_source_commits_nothing(lake: Lake, many: ManySources) -> None:
    (source, *_) = many.short
    polled = [*lake.batches_together([source], idle_ms=600_000)]
    assert len(polled) == 1
    before = lake.catalog.load_table(READERS.table).current_snapshot()
    assert [*lake.batches_together([source], idle_ms=600_000)] == []
    assert lake.catalog.load_table(READERS.table).current_snapshot() == before
    many.send(source)
    (report,) = lake.batches_together([source], idle_ms=600_000)
    assert getattr(report, "records", None) == 1


def test_messages_that_an_ingest_would_read_are_counted(lake: Lake, many: ManySources) -> None:
    (source, *_) = many.short
    assert lake.pending(source) == 1
    lake.ingest(source)
    assert lake.pending(source) == 0
    many.send(source)
    many.send(source)
    assert lake.pending(source) == 2
    lake.ingest(source)
    lake.sql(f"CREATE TABLE many.more (k BIGINT, v STRING) FROM SOURCE {source} (TOPIC '{source}') ENVELOPE UPSERT")
    assert lake.pending(source) > 0
    lake.ingest(source)
    assert lake.pending(source) == 0
