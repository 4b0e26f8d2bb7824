"""Readers and batches as rows of `mz_catalog.mz_readers` and `mz_catalog.mz_batches`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog

from lakehold.model import offsets
from lakehold.model.marks import NO_MARKS, Marks
from lakehold.model.passed import Passed
from lakehold.model.readers import Intent, Lease, ReaderError, ReaderState, TableProgress, Waiting
from lakehold.state.batches import Batch, BatchStore, TableChange
from lakehold.state.log_table import LogTable
from lakehold.state.state_table import Row, StateValues
from lakehold.times import now_ms

READERS_TABLE = "mz_catalog.mz_readers"
BATCHES_TABLE = "mz_catalog.mz_batches"

_PROGRESS = TypeAdapter(dict[str, TableProgress])
_CHANGES = TypeAdapter(Mapping[str, TableChange])
_ERROR = TypeAdapter(ReaderError)
_WAITING = TypeAdapter(Waiting)


class PyIcebergBatches(BatchStore):
    """The batch protocol in the lake behind `catalog`."""

    def __init__(self, catalog: Catalog, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(clock)
        self._readers = StateValues(catalog, READERS_TABLE, reader_from_row, reader_to_row)
        self._batches = LogTable(catalog, BATCHES_TABLE)

    def all_readers(self) -> tuple[ReaderState, ...]:
        """The readers of all sources now."""
        return self._readers.values()

    def _change(self, apply: Callable[[tuple[ReaderState, ...]], Iterable[ReaderState]]) -> tuple[ReaderState, ...]:
        return self._readers.change(apply)

    def _append(self, batch: Batch) -> None:
        self._batches.append(batch_to_row(batch))

    def forget(self, before_ms: int, *, dry_run: bool = False) -> int:
        """Take the rows of the history away that were committed before a time."""
        act = self._batches.count_old if dry_run else self._batches.forget
        return act("committed_at_ms", before_ms)

    def _appended(self) -> tuple[Batch, ...]:
        return tuple(map(batch_from_row, self._batches.rows()))


def reader_to_row(state: ReaderState) -> Row:
    """The row of `state`; the inverse of `reader_from_row`."""
    lease, intent = state.lease, state.intent
    return {
        "source": state.source,
        "reader": state.reader,
        "tables": _progress_to_json(state.tables),
        "position": offsets.to_json(state.position),
        "topic_ids": json.dumps(dict(state.topic_ids), sort_keys=True),
        "upper_ms": state.upper_ms,
        "owner": lease.owner if lease else None,
        "lease_since_ms": lease.since_ms if lease else None,
        "lease_until_ms": lease.until_ms if lease else None,
        "intent_timestamp_ms": intent.mz_timestamp if intent else None,
        "intent_offsets": offsets.to_json(intent.end) if intent else None,
        "intent_tables": json.dumps(dict(intent.parents), sort_keys=True) if intent else None,
        "error": _ERROR.dump_json(state.error).decode() if state.error else None,
        "transactions": state.transactions.to_json() or None,
        "intent_transactions": (intent.transactions.to_json() or None) if intent else None,
        "waiting": _WAITING.dump_json(state.waiting).decode() if state.waiting else None,
        "seen_upstream_ms": state.seen_upstream_ms,
        "catch_up_from": offsets.to_json(state.catch_up_from) if state.catch_up_from else None,
        "catch_up_to": offsets.to_json(state.catch_up_to) if state.catch_up_to else None,
        "updated_at_ms": state.updated_at_ms,
    }


def reader_from_row(row: Row) -> ReaderState:
    """The reader that `row` keeps."""
    source, reader = row["source"], row["reader"]
    return ReaderState(
        source=source,
        reader=reader,
        tables=_progress_from_json(row["tables"]),
        position=offsets.from_json(row["position"]),
        topic_ids=json.loads(row["topic_ids"]),
        upper_ms=row["upper_ms"],
        lease=Lease(row["owner"], row["lease_since_ms"], row["lease_until_ms"]) if row["owner"] is not None else None,
        intent=_intent(row) if row["intent_timestamp_ms"] is not None else None,
        error=_ERROR.validate_json(row["error"]) if row["error"] is not None else None,
        transactions=Passed.from_json(row.get("transactions") or ""),
        waiting=_WAITING.validate_json(row["waiting"]) if row.get("waiting") is not None else None,
        seen_upstream_ms=row.get("seen_upstream_ms"),
        catch_up_from=offsets.from_json(row.get("catch_up_from") or "{}"),
        catch_up_to=offsets.from_json(row.get("catch_up_to") or "{}"),
        updated_at_ms=row["updated_at_ms"],
    )


def _progress_to_json(tables: Mapping[str, TableProgress]) -> str:
    """Write what tables have passed as text in the text, as snapshots' summaries have it."""
    rows = _PROGRESS.dump_python(dict(tables), mode="json", exclude={"__all__": {"marks"}})
    marks = {name: progress.marks.to_json() if progress.marks != NO_MARKS else "" for name, progress in tables.items()}
    return json.dumps({name: {**row, "marks": marks[name]} for name, row in rows.items()})


def _progress_from_json(text: str) -> dict[str, TableProgress]:
    rows = json.loads(text)
    marks = {name: Marks.from_json(row.pop("marks", "")) for name, row in rows.items()}
    return {name: replace(progress, marks=marks[name]) for name, progress in _PROGRESS.validate_python(rows).items()}


def _intent(row: Row) -> Intent:
    return Intent(
        source=row["source"],
        reader=row["reader"],
        mz_timestamp=row["intent_timestamp_ms"],
        end=offsets.from_json(row["intent_offsets"]),
        parents=json.loads(row["intent_tables"]),
        transactions=Passed.from_json(row.get("intent_transactions") or ""),
    )


def batch_to_row(batch: Batch) -> Row:
    """The row of `batch`; the inverse of `batch_from_row`."""
    return {
        "source": batch.source,
        "reader": batch.reader,
        "mz_timestamp": batch.mz_timestamp,
        "start_offsets": offsets.to_json(batch.start),
        "end_offsets": offsets.to_json(batch.end),
        "tables": _CHANGES.dump_json(batch.tables).decode(),
        "records": batch.records,
        "bytes": batch.bytes,
        "started_at_ms": batch.started_at_ms,
        "committed_at_ms": batch.committed_at_ms,
        "owner": batch.owner,
    }


def batch_from_row(row: Row) -> Batch:
    """The batch that `row` keeps."""
    return Batch(
        source=row["source"],
        reader=row["reader"],
        mz_timestamp=row["mz_timestamp"],
        start=offsets.from_json(row["start_offsets"]),
        end=offsets.from_json(row["end_offsets"]),
        tables=_CHANGES.validate_json(row["tables"]),
        records=row["records"],
        bytes=row["bytes"],
        started_at_ms=row["started_at_ms"],
        committed_at_ms=row["committed_at_ms"],
        owner=row["owner"],
    )
