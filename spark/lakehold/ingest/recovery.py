"""Recovery before a source is read on: finish batches that a crash left open, and stop tables that cannot be read on.

`source_ingest.py` calls these functions when an ingest or a backfill begins. A batch is *open* from its intent to its commit.
"""

from __future__ import annotations

import logging
from collections.abc import Generator

from lakehold.errors import TableGone, TableLeftOut, TableUnpublished
from lakehold.ingest.batch import finish_batch, stop
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.leased_source import LeasedSource
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.model.readers import MAIN_READER

log = logging.getLogger(__name__)

_GONE = frozenset({TableGone.default_code, TableUnpublished.default_code})
_NOT_CAPTURED = _GONE | {TableLeftOut.default_code}


def recover(of: LeasedSource, fetched: FetchedOffsets) -> Generator[BatchReport, None, set[str]]:
    """Commit batches that a crash left open, with their own offsets and timestamps. Returns the tables that stopped.

    Topics of tables that were dropped meanwhile are skipped: the topics may be deleted, or be others of the same name. A
    table whose topic no longer has the records of the batch stops at the position before it, or after it if the table has the
    batch's changes already. The transaction topic is not needed again: the intent has the end of the batch.
    """
    all_stopped: set[str] = set()
    for name in tuple(of.readers()):
        state = of.readers()[name]
        if state.intent is None:
            continue
        log.info("finishing batch %s of %s", state.intent.mz_timestamp, of.source)
        topics = of.with_transactions(of.topics(state))
        own = fetched.without(fetched.topics - topics)
        found = of.faults(own, state)
        if of_no_topic := [error for topic, error in found.items() if topic not in topics]:
            # A fault of a file of a FILES source belongs to no topic: any table may have had messages there.
            raise of_no_topic[0]
        if stopped := {table: found[of.topic(table)] for table in state.tables if of.topic(table) in found}:
            yield stop(of, name, stopped)
            all_stopped |= stopped.keys()
            state = of.readers().get(name, state)
        if state.intent is not None and not state.tables.keys() <= stopped.keys():
            planned = of.planner.plan_again(state, state.intent.end, state.intent.transactions, own.without(found))
            yield finish_batch(of, state, planned, state.intent)
    return all_stopped


def stop_faulty(of: LeasedSource, fetched: FetchedOffsets) -> Generator[BatchReport, None, set[str]]:
    """Stop the tables of topics that contradict what was read of them; the others continue. Returns the stopped ones."""
    main = of.readers()[MAIN_READER]
    found = of.faults(fetched, main)
    if of.transaction_topic not in main.topic_ids and of.transaction_topic in fetched.missing:
        # The connector creates the transaction topic with its first transaction.
        found = {topic: error for topic, error in found.items() if topic != of.transaction_topic}
    of_no_table = {topic: e for topic, e in found.items() if topic not in fetched.topics - {of.transaction_topic}}
    if of_no_table:
        raise next(iter(of_no_table.values()))
    stopped = {name: found[of.topic(name)] for name in main.tables if of.topic(name) in found}
    if stopped:
        yield stop(of, MAIN_READER, stopped)
    return {*stopped}


def stop_uncaptured(of: LeasedSource) -> Generator[BatchReport, None, set[str]]:
    """Stop the tables of which the connector sends no changes: their topics are not what the database has.

    It leaves them out, or the database has or publishes them no more. Such a table stays stopped until the connector has
    snapshotted it again.

    Returns:
        The stopped tables.
    """
    all_stopped: set[str] = set()
    for name in tuple(of.readers()):
        state, snapshots = of.readers()[name], of.snapshots
        code = state.error.code if state.error is not None else None
        returned = snapshots.returned if code in _GONE else {}
        stops = {**returned, **(snapshots.stops or {})}
        if stopped := {t: stops[p.object_id] for t, p in state.tables.items() if p.object_id in stops}:
            yield stop(of, name, stopped)
            all_stopped |= stopped.keys()
        elif code in _NOT_CAPTURED:
            all_stopped |= {t for t, p in state.tables.items() if snapshots.must_stay_stopped(p.object_id)}
    return all_stopped
