"""The batch protocol, the same in memory and in a lake."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

from lakehold.errors import DefinitionError, LeaseLost
from lakehold.model import readers as decide
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.model.leases import Lease
from lakehold.model.offsets import TopicPartition
from lakehold.model.readers import (
    Intent,
    ReaderError,
    Readers,
    ReaderState,
    Stop,
    TableProgress,
    last_timestamp,
)
from lakehold.state.batch_protocol import BATCHES, READERS, Batch, BatchStore, TableChange
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.store import State
from tests.contract.conftest import START_MS, Clock

P0 = TopicPartition("shop.public.orders", 0)


@pytest.fixture
def store(state: State, clock: Clock) -> BatchStore:
    return BatchStore(state, clock)


def intent(mz_timestamp: int, end: int, reader: str = "main") -> Intent:
    return Intent("shop", reader, mz_timestamp, {P0: end}, frozenset(["shop.orders"]))


def row(of: Intent, start: int = 0) -> Batch:
    return Batch(of.source, of.reader, of.mz_timestamp, {P0: start}, of.end, {"shop.orders": TableChange(inserted=1)})


def reading(store: BatchStore, *tables: str, holder: str = "a") -> None:
    """Let `holder` hold the source `shop`, whose main reader feeds `tables` from offset 0."""

    def with_tables(readers: Readers) -> Readers:
        progress = {table: TableProgress() for table in tables}
        return {"main": replace(readers["main"], tables=progress, position={P0: 0})}

    store.acquire("shop", holder, START_MS + 15_000)
    store.change_readers("shop", holder, with_tables)


def test_a_source_read_for_the_first_time_gets_a_main_reader(store: BatchStore) -> None:
    store.acquire("shop", "a", START_MS + 15_000)
    assert list(store.readers("shop")) == ["main"]
    assert store.readers("shop")["main"].lease == Lease("a", START_MS, START_MS + 15_000)
    assert store.readers("shop")["main"].upper_ms is None


def test_a_writer_taken_for_dead_can_do_nothing_any_more(store: BatchStore, clock: Clock) -> None:
    reading(store, "shop.orders", holder="zombie")
    open_batch = intent(START_MS + 1, 10)
    store.begin(open_batch, "zombie")
    clock.now_ms += 15_000
    store.acquire("shop", "b", clock.now_ms + 15_000)
    assert store.readers("shop")["main"].intent == open_batch

    with pytest.raises(LeaseLost, match="shop"):
        store.renew("shop", "zombie", clock.now_ms + 15_000)
    with pytest.raises(LeaseLost):
        store.commit(open_batch, "zombie", {"shop.orders": TableProgress()}, row(open_batch))
    with pytest.raises(LeaseLost):
        store.change_readers("shop", "zombie", lambda readers: decide.dropped(readers, "shop.orders"))
    store.release("shop", "zombie")

    store.commit(open_batch, "b", {"shop.orders": TableProgress()}, row(open_batch))
    with pytest.raises(LeaseLost):
        store.begin(intent(clock.now_ms, 20), "zombie")
    assert store.readers("shop")["main"].lease == Lease("b", clock.now_ms, clock.now_ms + 15_000)
    assert [b.mz_timestamp for b in store.history()] == [START_MS + 1]


def test_a_batch_advances_position_and_upper_and_is_in_the_history(store: BatchStore) -> None:
    reading(store, "shop.orders")
    first = intent(START_MS + 1, 10)
    store.begin(first, "a")
    assert store.readers("shop")["main"].intent == first
    assert store.readers("shop")["main"].position == {P0: 0}

    store.commit(first, "a", {"shop.orders": TableProgress(since_ms=START_MS + 1, open_errors=2)}, row(first))
    state = store.readers("shop")["main"]
    assert (state.position, state.upper_ms, state.intent) == ({P0: 10}, START_MS + 2, None)
    assert state.tables == {"shop.orders": TableProgress(since_ms=START_MS + 1, open_errors=2)}
    assert store.history("shop") == (row(first),)
    assert store.history("stock") == ()


def test_committing_again_is_harmless_even_after_later_batches(store: BatchStore) -> None:
    reading(store, "shop.orders")
    first, second = intent(START_MS + 1, 10), intent(START_MS + 2, 20)
    tables = {"shop.orders": TableProgress()}
    for batch in (first, second):
        store.begin(batch, "a")
        store.commit(batch, "a", tables, row(batch))
        store.commit(first, "a", tables, row(first))
    assert store.readers("shop")["main"].position == {P0: 20}
    assert [b.mz_timestamp for b in store.history()] == [START_MS + 1, START_MS + 2]


def test_a_batch_counts_only_once_it_is_committed(store: BatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    reading(store, "shop.orders")
    batch = intent(START_MS + 1, 10)
    store.begin(batch, "a")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store._readers, "change", crash)
        with pytest.raises(KeyboardInterrupt):
            store.commit(batch, "a", {"shop.orders": TableProgress()}, row(batch))
    assert store.history() == ()
    assert store.readers("shop")["main"].intent == batch

    store.commit(batch, "a", {"shop.orders": TableProgress()}, row(batch))
    assert store.history() == (row(batch),)


def test_one_batch_at_a_time_each_later_than_the_last(store: BatchStore, clock: Clock) -> None:
    reading(store, "shop.orders")
    first = intent(START_MS + 5, 10)
    store.begin(first, "a")
    store.begin(first, "a")
    with pytest.raises(ValueError, match="not committed yet"):
        store.begin(intent(START_MS + 6, 10), "a")
    store.commit(first, "a", {"shop.orders": TableProgress()}, row(first))
    with pytest.raises(ValueError, match="not later"):
        store.begin(intent(START_MS + 5, 20), "a")
    clock.now_ms += 15_000
    with pytest.raises(LeaseLost, match="shop"):
        store.begin(intent(START_MS + 6, 20), "a")


def test_timestamps_are_later_than_those_of_every_reader(store: BatchStore) -> None:
    assert last_timestamp(store.readers("shop")) is None
    reading(store, "shop.orders")
    tables = {"shop.new": TableProgress()}
    store.change_readers("shop", "a", lambda r: {**r, "shop.new": replace(r["main"], reader="shop.new", tables=tables)})
    first = intent(START_MS + 5, 10, reader="shop.new")
    store.begin(first, "a")
    assert last_timestamp(store.readers("shop")) == START_MS + 5
    store.commit(first, "a", tables, row(first))
    assert last_timestamp(store.readers("shop")) == START_MS + 5


def test_a_stopped_table_keeps_its_position_and_its_neighbours_go_on(store: BatchStore) -> None:
    reading(store, "shop.orders", "shop.lines")
    batch = intent(START_MS + 1, 10)
    store.begin(batch, "a")
    error = ReaderError("type-changed", 'column "id" became text', hint="Create the table again.")
    progress = {"shop.orders": TableProgress(), "shop.lines": TableProgress(since_ms=7)}
    store.commit(batch, "a", progress, row(batch), stopped={"shop.orders": error})

    readers = store.readers("shop")
    assert readers["main"].tables == {"shop.lines": TableProgress(since_ms=7)}
    assert (readers["main"].position, readers["main"].upper_ms) == ({P0: 10}, START_MS + 2)
    stopped = readers["shop.orders"]
    assert (stopped.position, stopped.error, stopped.intent) == ({P0: 0}, error, None)
    assert stopped.lease == readers["main"].lease


def test_a_table_that_stops_after_it_took_a_batch_continues_after_the_batch(store: BatchStore) -> None:
    reading(store, "shop.orders", "shop.lines")
    batch, error = intent(START_MS + 1, 10), ReaderError("table-failed", "it failed")
    store.begin(batch, "a")
    progress = {"shop.orders": TableProgress(open_errors=1), "shop.lines": TableProgress()}
    stopped = dict.fromkeys(progress, error)
    store.commit(batch, "a", progress, row(batch), stopped, written={"shop.orders"})
    readers = store.readers("shop")
    assert (readers["shop.orders"].position, readers["shop.lines"].position) == ({P0: 10}, {P0: 0})
    assert readers["shop.orders"].tables["shop.orders"].open_errors == 1


@pytest.mark.parametrize("reader", ["backfill", "shop.orders"])
def test_the_timestamp_of_a_batch_whose_only_table_stops_is_not_given_again(store: BatchStore, reader: str) -> None:
    reading(store, "shop.lines")
    own = {"shop.orders": TableProgress()}
    store.change_readers("shop", "a", lambda r: {**r, reader: replace(r["main"], reader=reader, tables=own)})
    batch = intent(START_MS + 5, 10, reader=reader)
    store.begin(batch, "a")
    store.commit(batch, "a", own, row(batch), {"shop.orders": ReaderError("table-failed", "it failed")})
    assert last_timestamp(store.readers("shop")) == START_MS + 5
    with pytest.raises(ValueError, match="not later"):
        store.begin(intent(START_MS + 5, 20), "a")
    assert store.history() == (row(batch),)


def test_the_stops_of_a_readable_table_are_stored(store: BatchStore) -> None:
    reading(store, "shop.orders", "shop.lines")
    error = ReaderError("table-failed", "it failed")

    def batch(at: int, end: int, stopped: str | None = None, reader: str = "main") -> None:
        open_batch = intent(START_MS + at, end, reader)
        store.begin(open_batch, "a")
        tables = store.readers("shop")[reader].tables
        progress = {name: replace(before, since_ms=before.since_ms or START_MS + at) for name, before in tables.items()}
        store.commit(open_batch, "a", progress, row(open_batch), {stopped: error} if stopped else {})

    def progress(reader: str = "main") -> TableProgress:
        return store.readers("shop")[reader].tables["shop.orders"]

    batch(1, 10)
    batch(20, 20, stopped="shop.orders")
    assert progress("shop.orders") == TableProgress(since_ms=START_MS + 1, stopped_ms=START_MS + 20)
    batch(30, 15, reader="shop.orders")
    batch(40, 20, reader="shop.orders")
    own = store.readers("shop")["shop.orders"]
    assert (own.upper_ms, own.upper_of("shop.orders")) == (START_MS + 41, START_MS + 20)
    store.change_readers("shop", "a", lambda r: decide.joined(r, "shop.orders"))
    first = Stop(START_MS + 20, START_MS + 40)
    assert progress() == TableProgress(since_ms=START_MS + 1, stops=(first,))
    assert store.readers("shop")["main"].upper_of("shop.orders") == START_MS + 41

    store.change_readers("shop", "a", lambda r: decide.split_off(r, "shop.orders", error))
    assert progress("shop.orders").stopped_ms == START_MS + 41
    store.change_readers("shop", "a", lambda r: decide.joined(r, "shop.orders"))
    assert progress().stops == (first,), "no other table advanced meanwhile"
    store.change_readers("shop", "a", lambda r: decide.split_off(r, "shop.orders", error))
    batch(50, 20)
    batch(60, 20)
    store.change_readers("shop", "a", lambda r: decide.joined(r, "shop.orders"))
    assert progress().stops == (first, Stop(START_MS + 41, START_MS + 60))
    assert store.readers("shop")["main"].tables["shop.lines"].stops == ()


def test_readers_stored_before_stops_existed_are_read() -> None:
    now = READERS.to_row(
        ReaderState("shop", "main", {"shop.orders": TableProgress(7, 2, HighWaterMarks({0: (1, 2, 3, 4)}), "id")})
    )
    before = {
        **now,
        "tables": '{"shop.orders": {"since_ms": 7, "open_errors": 2, "object_id": "id", '
        '"marks": "{\\"passed\\":{\\"0\\":[1,2,3,4]}}"}}',
    }
    assert READERS.from_row(before) == READERS.from_row(now)


def test_the_catch_up_range_of_a_reader_is_stored_and_removed_with_the_reader(store: BatchStore) -> None:
    reading(store, "shop.orders")

    def catching_up(readers: Readers) -> Readers:
        own = replace(readers["main"], reader="shop.new", tables={"shop.new": TableProgress()})
        return {**readers, "shop.new": replace(own, catch_up_from={P0: 3}, catch_up_to={P0: 10})}

    store.change_readers("shop", "a", catching_up)
    kept = store.readers("shop")["shop.new"]
    assert (kept.catch_up_from, kept.catch_up_to) == ({P0: 3}, {P0: 10})
    readers = store.change_readers("shop", "a", lambda r: decide.joined(r, "shop.new"))
    assert (readers["main"].catch_up_from, readers["main"].catch_up_to) == ({}, {})


def test_a_backfilled_table_joins_at_the_position_of_both_readers(store: BatchStore) -> None:
    reading(store, "shop.orders")
    store.change_readers(
        "shop",
        "a",
        lambda r: {**r, "shop.new": replace(r["main"], reader="shop.new", tables={"shop.new": TableProgress()})},
    )
    ahead = intent(START_MS + 1, 10, reader="shop.new")
    store.begin(ahead, "a")
    store.commit(ahead, "a", {"shop.new": TableProgress(since_ms=START_MS + 1)}, row(ahead))
    with pytest.raises(ValueError, match="is not at the position of main"):
        store.change_readers("shop", "a", lambda r: decide.joined(r, "shop.new"))

    later = intent(START_MS + 2, 10)
    store.begin(later, "a")
    store.commit(later, "a", {"shop.orders": TableProgress()}, row(later))
    readers = store.change_readers("shop", "a", lambda r: decide.joined(r, "shop.new"))
    assert list(readers) == ["main"]
    assert set(readers["main"].tables) == {"shop.orders", "shop.new"}
    assert readers["main"].upper_ms == START_MS + 3
    assert [b.reader for b in store.history("shop")] == ["shop.new", "main"]


def test_tables_can_be_stopped_and_dropped(store: BatchStore) -> None:
    reading(store, "shop.orders", "shop.lines")
    error = ReaderError("stopped", "stopped by hand")
    store.change_readers("shop", "a", lambda r: decide.split_off(r, "shop.orders", error))
    assert store.readers("shop")["shop.orders"].error == error
    assert set(store.readers("shop")["main"].tables) == {"shop.lines"}
    store.change_readers("shop", "a", lambda r: decide.dropped(r, "shop.orders"))
    store.change_readers("shop", "a", lambda r: decide.dropped(r, "shop.lines"))
    assert set(store.readers("shop")) == {"main"}
    with pytest.raises(DefinitionError, match=r'no reader "shop\.orders"'):
        store.begin(intent(START_MS + 1, 10, reader="shop.orders"), "a")
    store.change_readers("shop", "a", lambda _: {})
    assert store.all_readers() == ()


def test_sources_do_not_touch_each_other(store: BatchStore, clock: Clock) -> None:
    reading(store, "shop.orders")
    clock.now_ms += 1
    before = store.readers("shop")
    store.acquire("stock", "b", clock.now_ms + 15_000)
    store.release("stock", "b")
    assert store.readers("shop") == before


def test_old_batches_are_deleted_and_the_source_goes_on(state: State, store: BatchStore) -> None:
    """Commit an open batch whatever the history has lost, since the position of a reader is its own row."""
    reading(store, "shop.orders")
    for number in (1, 2):
        done = intent(START_MS + number, number * 10)
        store.begin(done, "a")
        store.commit(done, "a", {"shop.orders": TableProgress()}, replace(row(done), committed_at_ms=number))
    open_intent = intent(START_MS + 3, 30)
    store.begin(open_intent, "a")
    log = state.log(BATCHES)
    assert log.forget("committed_at_ms", 2) == 1
    assert [batch.committed_at_ms for batch in store.history()] == [2]
    before = store.readers("shop")
    assert log.forget("committed_at_ms", 99) == 1
    assert store.readers("shop") == before
    store.commit(open_intent, "a", {"shop.orders": TableProgress()}, row(open_intent))
    assert store.history() == (row(open_intent),)
    assert store.readers("shop")["main"].upper_ms == START_MS + 4


def test_the_state_of_an_undeclared_source_is_deleted_when_nobody_holds_its_lease(
    store: BatchStore, clock: Clock
) -> None:
    store.forget_source("shop")
    reading(store, "shop.orders")
    store.acquire("other", "b", START_MS + 15_000)
    store.forget_source("shop")
    assert store.readers("shop"), "its ingest holds the lease"
    store.release("shop", "a")
    for _ in range(2):
        store.forget_source("shop")
        assert [reader.source for reader in store.all_readers()] == ["other"]
    clock.now_ms += 15_000
    store.forget_source("other")
    assert store.all_readers() == (), "the lease has expired"


def test_unchanged_readers_commit_nothing(catalog: Catalog, clock: Clock) -> None:
    store = BatchStore(IcebergState(catalog), clock)
    reading(store, "shop.orders")
    ids = {"t": "a", "s": "b"}
    store.change_readers("shop", "a", lambda r: {"main": replace(r["main"], topic_ids=ids)})
    before = catalog.load_table(READERS.table).metadata_location
    clock.now_ms += 1
    other_way_round = dict(reversed(ids.items()))
    store.change_readers("shop", "a", lambda r: {"main": replace(r["main"], topic_ids=other_way_round)})
    store.release("shop", "b")
    assert catalog.load_table(READERS.table).metadata_location == before
