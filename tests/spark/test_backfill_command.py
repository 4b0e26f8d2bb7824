"""`lakehold backfill`: the named tables get in sync with the others of their source, or the command says what stops them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from lakehold.cli.backfill import COLUMNS, run_backfill
from lakehold.cli.command_output import JsonOutput
from lakehold.cli.ingest import run_ingest
from lakehold.errors import DefinitionError
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from lakehold.model.readers import BACKFILL_READER, MAIN_READER
from lakehold.overview import gather, render
from lakehold.progress import NoProgress, Progress, Task
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.numbered_shop import BATCH, NumberedShop

pytestmark = pytest.mark.spark

STRICT = "WITH (ON ERROR = 'fail')"


@pytest.fixture
def shop(make_lake: LakeFactory, tmp_path: Path) -> NumberedShop:
    """Return a shop whose table `s.first` has all messages of topic `orders`."""
    found = NumberedShop(make_lake(max_batch_records=BATCH), tmp_path / "topics")
    found.table("first", "orders")
    found.write("orders", 2 * BATCH)
    found.write("items", 3 * BATCH)
    found.lake.ingest("shop")
    return found


def backfill(lake: Lake, *tables: str, progress: Progress | None = None) -> tuple[int, list[dict[str, Any]], str]:
    """Run the command; return its exit code, its rows and its stderr."""
    rows, notices = io.StringIO(), io.StringIO()
    code = run_backfill(lake, tables, JsonOutput(rows, notices), progress or NoProgress())
    return code, [json.loads(line) for line in rows.getvalue().splitlines()], notices.getvalue()


def test_a_named_table_joins_and_becomes_readable_and_a_stopped_one_stays_stopped(shop: NumberedShop) -> None:
    shop.table("strict", "items", STRICT)
    shop.write("items", 1, value=b"no json")
    shop.lake.ingest("shop")
    assert shop.status("strict")["state"] == "stopped"
    shop.table("again", "orders")
    code, (row,), notices = backfill(shop.lake, "s.again")
    assert (code, notices, tuple(row)) == (0, "", COLUMNS)
    assert (row["table"], row["messages"], row["behind"]) == ("s.again", 2 * BATCH, None)
    assert shop.readers() == {MAIN_READER: {"s.first", "s.again"}, "s.strict": {"s.strict"}}
    (line,) = shop.lake.timelines.of(["s.again"]).values()
    assert shop.lake.sql(f"SELECT count(*) FROM s.again AS OF {line.since_ms}").rows == [(2 * BATCH,)]
    assert shop.rows("again") == 2 * BATCH


def test_other_tables_go_on_during_a_backfill_and_are_in_sync_after_it(shop: NumberedShop) -> None:
    shop.table("again", "orders")
    more = iter((1, 2))

    def arriving(report: BatchReport) -> None:
        if report.reader == BACKFILL_READER and (number := next(more, 0)):
            shop.write("orders", number)

    (done,) = shop.lake.backfill(["s.again"], arriving)
    assert done.is_there
    assert shop.rows("first") == shop.rows("again") == 2 * BATCH + 3
    snapshot = shop.lake.catalog.load_table("s.again").metadata.current_snapshot_id
    code, (row,), notices = backfill(shop.lake, "s.again", "s.again")
    assert (code, row["messages"]) == (0, 0)
    assert notices == "notice: s.again is in sync with the others of source shop: nothing to do\n"
    assert shop.lake.catalog.load_table("s.again").metadata.current_snapshot_id == snapshot


class Watched:
    """A progress bar that records (done, total) at each step."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self._done = self._total = 0

    @contextmanager
    def task(self, what: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
        assert (what, unit, total) == ("filling 2 tables of shop", "records", None)
        yield self

    def advance(self, amount: int = 1, note: str = "") -> None:  # noqa: ARG002 - the seam's
        self._done += amount
        self.seen.append((self._done, self._total))

    def expect(self, total: int) -> None:
        self._total = total


def test_progress_is_seen_batch_by_batch_and_survives_a_restart(shop: NumberedShop, make_lake: LakeFactory) -> None:
    shop.table("again", "orders")
    shop.table("items", "items")
    assert (shop.status("again")["state"], shop.status("again")["behind"]) == ("new", None)
    stop = Event()

    def one_batch(report: BatchReport) -> None:
        if report.reader == BACKFILL_READER:
            stop.set()

    cut_short = shop.lake.backfill(["s.again", "s.items"], one_batch, stop=stop)
    assert [(report.is_there, report.error) for report in cut_short] == [(False, None)] * 2
    settings = shop.lake.settings
    shop.lake = make_lake(Path(settings.warehouse), catalog_name=settings.catalog_name, max_batch_records=BATCH)
    statuses = {name: shop.status(name) for name in ("again", "items")}
    assert {status["state"] for status in statuses.values()} == {"catching-up"}
    assert statuses["again"]["read"] + statuses["again"]["behind"] == 2 * BATCH
    assert statuses["items"]["read"] + statuses["items"]["behind"] == 3 * BATCH
    assert sum(status["read"] for status in statuses.values()) == BATCH
    page = render(gather(shop.lake))
    assert f"{statuses['items']['read']:,} of 12 records read since it began to catch up" in page

    watched = Watched()
    code, _, _ = backfill(shop.lake, "s.again", "s.items", progress=watched)
    assert code == 0
    totals = {total for _, total in watched.seen}
    assert (watched.seen[0][0] > BATCH, totals, watched.seen[-1]) == (True, {5 * BATCH}, (5 * BATCH, 5 * BATCH))
    assert (shop.status("items")["read"], shop.status("items")["behind"]) == (None, None)
    assert (shop.rows("again"), shop.rows("items")) == (2 * BATCH, 3 * BATCH)


def test_a_table_that_stops_reports_its_error_and_its_lag_and_the_others_are_filled(shop: NumberedShop) -> None:
    shop.write("items", 1, value=b"no json")
    shop.write("items", BATCH)
    shop.table("strict", "items", STRICT)
    shop.table("again", "orders")
    for _ in range(2):
        code, (strict, again), notices = backfill(shop.lake, "s.strict", "s.again")
        assert code == 1
        assert (strict["since"], strict["behind"]) == (None, BATCH + 1)
        assert (again["behind"], again["since"] is not None) == (None, True)
        assert 'error: table "s.strict" got 1 messages that cannot be applied' in notices
        assert "hint: Correct the producer" in notices
        assert notices.endswith("code: bad-input\n")
    status = shop.status("strict")
    assert (status["state"], status["read"], status["behind"]) == ("stopped", 3 * BATCH, BATCH + 1)


@pytest.mark.parametrize(("name", "code"), [("s.frist", "table-missing"), ("s.others", "table-not-fed")])
def test_an_unknown_name_is_refused_before_any_table_is_filled(shop: NumberedShop, name: str, code: str) -> None:
    shop.table("again", "orders")
    shop.lake.sql("CREATE TABLE s.others (k BIGINT) USING iceberg")
    with pytest.raises(DefinitionError) as refused:
        backfill(shop.lake, "s.again", name)
    assert refused.value.code == code
    assert shop.status("again")["state"] == "new"


def test_a_table_that_lakehold_publishes_is_refused_with_the_command_that_fills_it(shop: NumberedShop) -> None:
    shop.lake.sql("""
        CREATE TABLE s.others (k BIGINT) USING iceberg;
        CREATE MATERIALIZED VIEW s.seen AS SELECT k FROM s.others;
        CREATE SUBSCRIPTION changes INTO s.changed AS SUBSCRIBE s.others;
    """)
    for name, publishes in (("s.seen", "s.seen"), ("s.changed", "changes")):
        with pytest.raises(DefinitionError) as refused:
            backfill(shop.lake, name)
        assert refused.value.code == "table-not-fed"
        assert refused.value.hint == f"lakehold publish {publishes} brings it up to date."


def test_a_table_with_an_incomplete_snapshot_is_reported_as_waiting_for_it(lake: Lake, tmp_path: Path) -> None:
    topic = Topic("t", {"id": {"type": "int64"}})
    lake.sql(f"CREATE SOURCE shop FROM FILES '{tmp_path / 'topics'}' FORMAT JSON")
    lake.sql("CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM")
    topic.snapshot([{"id": 1}], ended=False)
    topic.write(tmp_path / "topics")
    assert lake.behind() == [["s.t"]]
    for messages in (1, 0):
        code, (row,), notices = backfill(lake, "s.t")
        assert (code, row["messages"], row["since"]) == (1, messages, None)
        assert 'detail: Its first snapshot from source "shop" is not complete.' in notices
        assert notices.endswith("code: not-readable\n")
        assert lake.behind() == [], "the table has no messages left to read"
    topic.create({"id": 2})
    topic.write(tmp_path / "topics")
    code, (row,), notices = backfill(lake, "s.t")
    assert (code, row["since"] is not None, notices) == (0, True, "")


def test_a_source_whose_lease_another_process_has_is_reported(shop: NumberedShop) -> None:
    shop.table("again", "orders")
    ingesting = shop.lake.batches_of("shop")
    next(ingesting)
    code, (row,), notices = backfill(shop.lake, "s.again")
    ingesting.close()
    assert (code, row["since"]) == (1, None)
    assert notices.endswith("code: source-busy\n")


def test_a_table_dropped_during_a_backfill_is_reported_as_missing(shop: NumberedShop) -> None:
    shop.table("again", "orders")
    shop.table("items", "items")

    def dropping(report: BatchReport) -> None:
        if report.reader == BACKFILL_READER and "s.again" in shop.lake.definitions.definitions().tables:
            shop.lake.sql("DROP TABLE s.again")

    (again, items) = shop.lake.backfill(["s.again", "s.items"], dropping)
    assert (again.is_there, again.error.code if again.error else None) == (False, "table-missing")
    assert (items.is_there, items.error, shop.rows("items")) == (True, None, 3 * BATCH)
    assert not shop.lake.catalog.table_exists("s.again")


def test_an_ingest_reports_the_progress_of_tables_that_catch_up(shop: NumberedShop) -> None:
    shop.table("again", "orders")
    shop.table("items", "items")
    texts: list[str] = []

    class Recorded(NoProgress):
        @contextmanager
        def task(self, what: str, *, unit: str, total: int | None = None) -> Iterator[Task]:  # noqa: ARG002 - the seam's
            yield self

        def advance(self, amount: int = 1, note: str = "") -> None:  # noqa: ARG002
            texts.append(note.partition(", ")[2])

        def expect(self, total: int) -> None:
            """Ignore the total, which an ingest does not know."""

    assert run_ingest(shop.lake, ["shop"], JsonOutput(io.StringIO(), io.StringIO()), Recorded(), follow=False) == 0
    assert texts[0] == f"2 tables behind: {BATCH} of {5 * BATCH} read"
    assert texts[-1] == ""
