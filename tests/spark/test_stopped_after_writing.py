"""A table that stops in the middle of a batch has each row and each error of the batch once when it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lakehold.failpoints import Point
from lakehold.ingest import one_table
from lakehold.ingest.leased_source import LeasedSource
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.ingest.write import apply
from lakehold.ingest.write.error_records import ErrorRecords
from tests import recorded_files
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.stopped_tables import make_foreign, make_own

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """The death of the process, which the isolation of tables must not catch."""


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: Point, error: type[BaseException] = Killed) -> Iterator[None]:
    def failpoint(here: Point) -> None:
        if here == at:
            raise error

    with monkeypatch.context() as patched:
        for module in (apply, one_table):
            patched.setattr(module, "failpoint", failpoint)
        yield


def without_clicks(source: LeasedSource) -> FetchedOffsets:
    """Fetch the offsets of a source as a broker does that does not know the topic `clicks` yet."""
    fetched = source.reading.shared.fetch(source.source)
    return replace(fetched.without({"clicks"}), topics=fetched.topics, missing=("clicks",))


class Clicks:
    """A topic whose messages are rows, and the table `s.clicks` over it, beside the table `s.other`."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.file = shop.directory / "clicks.jsonl"
        self.other = Topic("other", dict(COLUMNS))
        shop.lake.sql("CREATE TABLE s.clicks (page STRING) FROM SOURCE shop (TOPIC 'clicks') ENVELOPE NONE")
        shop.table(self.other, "DEBEZIUM UPSERT")
        self.other.snapshot([row(1)])
        self.other.write(shop.directory)
        self.pages: list[str] = []

    def write(self, *pages: str) -> None:
        """Append a message for each page; the page `bad` cannot be decoded."""
        for page in pages:
            value = b"{" if page == "bad" else json.dumps({"page": page}).encode()
            recorded_files.append(self.file, [recorded_files.line("clicks", 0, len(self.pages), value)])
            self.pages.append(page)

    def stopped(self) -> dict[str, str]:
        return {name: error.code for name, error in self.shop.stopped().items()}

    def require_each_once(self) -> None:
        """Require that rows and errors together are all messages, and that no table is stopped."""
        assert [page for (page,) in self.shop.rows("clicks")] == sorted(page for page in self.pages if page != "bad")
        assert [offset for offset, *_ in self.shop.errors()] == [
            i for i, page in enumerate(self.pages) if page == "bad"
        ]
        (reader,) = self.shop.lake.batches.readers("shop").values()
        assert reader.tables["s.clicks"].open_errors == self.pages.count("bad")


@pytest.fixture
def clicks(shop: Shop) -> Clicks:
    made = Clicks(shop)
    made.write("a", "b")
    assert made.stopped() == {}
    return made


def test_a_topic_that_one_fetch_misses_after_a_kill_is_not_read_again(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks.write("c", "bad", "d")
    with dying(monkeypatch, "after-table"), pytest.raises(Killed):
        clicks.stopped()
    with monkeypatch.context() as patched:
        patched.setattr(LeasedSource, "fetch_offsets", without_clicks)
        for _ in range(2):
            assert clicks.stopped() == {"s.clicks": "topic-missing"}
    clicks.write("e")
    assert clicks.stopped() == {}
    clicks.require_each_once()


@pytest.mark.parametrize("key", [("id",), ()], ids=["with a key", "without"])
def test_a_re_snapshot_that_a_stop_interrupts_replaces_all_rows(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...]
) -> None:
    topic = Topic("clicks", dict(COLUMNS), key=key, has_keys=bool(key), has_orders=True)
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2), row(3)])
    shop.ingest(topic)
    topic.create(row(4))
    topic.delete(row(2), tombstone=False)
    topic.lsn, topic.last_commit = 5_000, None
    topic.snapshot([row(1), row(4)])
    topic.write(shop.directory)
    with dying(monkeypatch, "after-merge"), pytest.raises(Killed):
        shop.stopped()
    with monkeypatch.context() as patched:
        patched.setattr(LeasedSource, "fetch_offsets", without_clicks)
        assert [*shop.stopped()] == ["s.clicks"]
    topic.create(row(5))
    topic.delete(row(4), tombstone=False)
    assert shop.stopped(topic) == {}
    assert shop.rows("clicks") == [(1, "a", 0), (5, "a", 0)]


def test_a_table_that_cannot_take_a_batch_again_keeps_what_it_took_before(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks.write("c", "bad", "d")
    with dying(monkeypatch, "after-merge"), pytest.raises(Killed):
        clicks.stopped()
    make_foreign(clicks.shop.lake, "s.clicks")
    assert clicks.stopped() == {"s.clicks": "table-foreign"}
    make_own(clicks.shop.lake, "s.clicks")
    clicks.write("e", "bad")
    assert clicks.stopped() == {}
    clicks.require_each_once()


def test_errors_of_a_batch_that_stops_again_and_again_are_recorded_once(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks.write("bad", "c")
    with dying(monkeypatch, "after-errors", RuntimeError):
        assert clicks.stopped() == {"s.clicks": "table-failed"}
        clicks.write("bad", "d")
        assert clicks.stopped() == {"s.clicks": "table-failed"}
    assert clicks.stopped() == {}
    clicks.require_each_once()


def test_a_batch_that_is_tried_again_heals_no_later_error(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic("t", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM UPSERT")
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    topic.raw(topic._key(row(1)), b"{")
    topic.create(row(1))
    topic.create(row(2))
    topic.raw(topic._key(row(2)), b"{")
    with dying(monkeypatch, "after-errors", RuntimeError):
        assert [*shop.stopped(topic)] == ["s.t"]
    assert shop.stopped() == {}
    reason = "unknown-schema"
    assert shop.errors() == [(2, reason, True), (5, reason, False)]
    topic.create(row(2))
    shop.ingest(topic)
    assert shop.errors() == [(2, reason, True), (5, reason, True)]


def test_a_failure_after_the_commit_of_the_rows_adds_none_twice(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks.write("c", "bad")
    with dying(monkeypatch, "after-merge", RuntimeError):
        assert clicks.stopped() == {"s.clicks": "table-failed"}
    assert clicks.stopped() == {}
    clicks.require_each_once()


def test_a_table_stops_alone_though_its_errors_cannot_be_counted(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks.write("c")
    with dying(monkeypatch, "after-merge", RuntimeError), monkeypatch.context() as patched:
        patched.delattr(ErrorRecords, "open_of")
        assert clicks.stopped() == {"s.clicks": "table-failed"}
    assert clicks.stopped() == {}
    clicks.require_each_once()
