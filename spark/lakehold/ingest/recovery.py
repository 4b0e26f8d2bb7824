"""Before a source is read on: batches that a crash left open are finished, and tables stop of which upstream lost something."""

from __future__ import annotations

import logging
from collections.abc import Generator

from lakehold.ingest.batch import BatchReport, finish_batch, stop
from lakehold.ingest.held_source import HeldSource
from lakehold.ingest.read.reader import Available
from lakehold.model.readers import MAIN_READER

log = logging.getLogger(__name__)


def recover(of: HeldSource, available: Available) -> Generator[BatchReport, None, set[str]]:
    """Bring batches that a crash left open to their commit, with their own offsets and timestamps.

    Topics of tables that went meanwhile are left out: they may have gone, too, or be others of the same name. Tables whose topics
    do not have any more what the batch reads stop where they stood before it. The topic that says which transactions are whole is
    not needed again: the batch ends where it said. Returns the tables that stopped so.
    """
    all_stopped: set[str] = set()
    for name in tuple(of.readers()):
        state = of.readers()[name]
        if state.intent is None:
            continue
        log.info("going on with batch %s of %s", state.intent.mz_timestamp, of.source)
        topics = of.with_transactions(of.topics(state))
        own = available.without(available.topics - topics)
        found = of.faults(own, state)
        if of_no_topic := [error for topic, error in found.items() if topic not in topics]:
            # A file is: any table may have had messages there.
            raise of_no_topic[0]
        if stopped := {table: found[of.topic(table)] for table in state.tables if of.topic(table) in found}:
            yield stop(of, name, stopped)
            all_stopped |= stopped.keys()
            state = of.readers().get(name, state)
        if state.intent is not None and not state.tables.keys() <= stopped.keys():
            planned = of.planner.plan_again(state, state.intent.end, state.intent.transactions, own.without(found))
            yield finish_batch(of, state, planned, state.intent)
    return all_stopped


def stop_faulty(of: HeldSource, available: Available) -> Generator[BatchReport, None, set[str]]:
    """Stop the tables of topics that contradict what was read of them; the others go on. Returns them."""
    main = of.readers()[MAIN_READER]
    found = of.faults(available, main)
    if of.transaction_topic not in main.topic_ids and of.transaction_topic in available.missing:
        # The connector makes it with its first transaction.
        found = {topic: error for topic, error in found.items() if topic != of.transaction_topic}
    of_no_table = {topic: e for topic, e in found.items() if topic not in available.topics - {of.transaction_topic}}
    if of_no_table:
        raise next(iter(of_no_table.values()))
    stopped = {name: found[of.topic(name)] for name in main.tables if of.topic(name) in found}
    if stopped:
        yield stop(of, MAIN_READER, stopped)
    return {*stopped}
