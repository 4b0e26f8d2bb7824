"""Each batch ends at a commit, and all changes arrive, however transactions overlap and connectors are killed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.transactions.boundary import find_boundary
from lakehold.ingest.transactions.candidate import Extent
from lakehold.model.committed_transactions import CommittedTransactions
from lakehold.model.high_water_marks import Position
from lakehold.model.offsets import Offsets
from tests.topic_fetches import TopicFetches
from tests.upstream_log import TRANSACTIONS, State, Tables, Topics, Upstream

EXAMPLES = int(os.environ.get("TRANSACTION_EXAMPLES", "150"))
IN_TIME = 0.7
"""The probability that all topics are sent in one order."""


class Batches:
    """A source that takes whole transactions from topics of which it sees more each time.

    Args:
        random: Source of the ends that it sees and of the sizes of its batches.
        upstream: An upstream that has streamed everything.
        commits_to_kafka: The connector sends in Kafka transactions.
        lag: Without Kafka transactions, the most moments between the sending and the writing of a message.
        begins: The first offset of each partition; earlier messages are deleted.
    """

    def __init__(
        self,
        random: Random,
        upstream: Upstream,
        *,
        commits_to_kafka: bool = False,
        lag: int = 0,
        begins: Offsets | None = None,
    ) -> None:
        self._random = random
        self._topics: Topics = upstream.topics
        self._history = upstream.history() if begins is None else None
        self._is_in_time = upstream.renumbers or upstream.begins_snapshot or upstream.commits_alone
        self._position: Offsets = dict.fromkeys(self._topics.ends, 0) if begins is None else begins
        # The deleted transactions had ended.
        self._seen: Offsets = {**self._position, TRANSACTIONS: self._topics.ends[TRANSACTIONS] if begins else 0}
        self._committed = CommittedTransactions(cut_off=frozenset(tp for tp, at in self._position.items() if at > 0))
        self._lag = lag
        self._fetches = TopicFetches(random, upstream.topics, commits_to_kafka=commits_to_kafka, lag=lag)
        self._commit = 0
        self.tables = Tables()
        self._shown: dict[str, Position | None] = {tp.topic: None for tp in self._topics.ends if tp != TRANSACTIONS}

    def drain(self, *, everything: bool) -> None:
        """Fetch some more, or everything, and take its whole transactions."""
        if everything:
            self._seen = self._topics.ends
            self._fetches.at_rest()
        else:
            self._seen = self._seen_of_life()
        while self._batch(self._random.choice([2, 5, 20])):
            pass

    def _seen_of_life(self) -> Offsets:
        """Return more messages of one connector, and all messages of the connectors before it."""
        lives = [dict.fromkeys(self._seen, 0), *self._topics.lives, self._topics.ends]
        seen_up = [
            n for n, life in enumerate(lives[1:], 1) if any(at > lives[n - 1][tp] for tp, at in self._seen.items())
        ]
        life = self._random.randint(max([self._fetches.life, *seen_up]), len(lives) - 1)
        before = {tp: max(at, lives[life - 1][tp]) for tp, at in self._seen.items()}
        seen = {tp: self._random.randint(at, lives[life][tp]) for tp, at in before.items()}
        if self._history is None:
            # If the beginning was deleted, all ENDs are visible.
            return seen
        found = self._fetches.during(life)
        # Where counts alone show which events have arrived, other topics may be late or early by any time.
        is_in_time = self._is_in_time or self._random.random() < IN_TIME
        return {tp: max(before[tp], found[tp]) if is_in_time or tp == TRANSACTIONS else seen[tp] for tp in seen}

    def assert_all_changes_arrive(self, fetches: int) -> None:
        """Fetch more a number of times, then everything: the tables equal the final state upstream."""
        for _ in range(fetches):
            self.drain(everything=False)
        self.drain(everything=True)
        assert self._history is not None
        assert self.tables.state == self._history[-1]
        assert self.is_done

    @property
    def is_done(self) -> bool:
        """Return whether everything was read; BEGINs without later messages may be read again."""
        return all(
            message.boundary is not None and message.boundary.events is None and tp == TRANSACTIONS
            for tp, messages in self._topics.messages.items()
            for message in messages[self._position[tp] :]
        )

    def _batch(self, share: int) -> bool:
        stops = {tp: min(self._seen[tp], at + share) for tp, at in self._position.items()}
        unread = {tp for tp, seen in self._seen.items() if stops[tp] < seen}
        extent = Extent(
            self._position,
            stops,
            frozenset(unread),
            self._fetches.written,
            fetched_ms=self._fetches.began,
            lag_ms=self._lag,
            shown=self._shown,
        )
        candidate = self._topics.candidate(extent, self._fetches.sent)
        found = find_boundary(candidate, CommittedTransactions.from_json(self._committed.to_json()))
        if found.stops == self._position:
            return bool(unread) and self._batch(2 * share)
        replaced = found.committed.replaced
        self.tables.take(self._topics, self._position, found.stops, replaced)
        if replaced is not None:
            self._shown = dict.fromkeys(self._shown, replaced.position)
        self._position, self._committed = found.stops, found.committed
        if self._history is not None:
            self._assert_at_commit(self._history)
        return True

    def _assert_at_commit(self, history: Sequence[State]) -> None:
        """Check that the tables equal the state upstream after a commit that is not before the last one."""
        at = [number for number, state in enumerate(history) if state == self.tables.state]
        later = [number for number in at if number >= self._commit]
        assert later, f"no commit at or after {self._commit} left {self.tables.state}; such are {at}"
        self._commit = later[0]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tables=st.integers(1, 3),
    partitions=st.integers(1, 3),
    kills=st.integers(0, 3),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    renumbers=st.booleans(),
    commits_to_kafka=st.booleans(),
    commits_alone=st.booleans(),
)
def test_every_batch_ends_at_a_commit_and_all_changes_arrive(
    seed: int,
    tables: int,
    partitions: int,
    kills: int,
    ids: str,
    renumbers: bool,
    commits_to_kafka: bool,
    commits_alone: bool,
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random,
        tables=tables,
        partitions=partitions,
        transactions=random.randrange(14),
        ids=ids,
        renumbers=renumbers,
        commits_alone=commits_alone and ids != "postgres",
    )
    upstream.stream(kills)
    batches = Batches(random, upstream, commits_to_kafka=commits_to_kafka)
    batches.assert_all_changes_arrive(fetches=random.randrange(8))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 2),
    kills=st.integers(0, 3),
    commits_to_kafka=st.booleans(),
)
def test_transactions_of_several_logs_are_taken_in_their_common_order(
    seed: int,
    partitions: int,
    kills: int,
    commits_to_kafka: bool,
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random,
        tables=3,
        partitions=partitions,
        transactions=14,
        ids="gtids",
    )
    upstream.stream(kills)
    batches = Batches(random, upstream, commits_to_kafka=commits_to_kafka)
    batches.assert_all_changes_arrive(fetches=random.randrange(8))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tables=st.integers(1, 3),
    partitions=st.integers(1, 2),
    kills=st.integers(1, 4),
    ids=st.sampled_from(["postgres", "binlog"]),
    commits_to_kafka=st.booleans(),
    commits_alone=st.booleans(),
)
def test_a_resnapshot_is_in_one_batch(
    seed: int,
    tables: int,
    partitions: int,
    kills: int,
    ids: str,
    commits_to_kafka: bool,
    commits_alone: bool,
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random,
        tables=tables,
        partitions=partitions,
        transactions=random.randrange(2, 14),
        ids=ids,
        begins_snapshot=True,
        commits_alone=commits_alone and ids != "postgres",
    )
    upstream.stream(kills)
    batches = Batches(random, upstream, commits_to_kafka=commits_to_kafka)
    batches.assert_all_changes_arrive(fetches=random.randrange(8))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    commits_to_kafka=st.booleans(),
)
def test_events_sent_before_a_kill_are_not_taken_for_the_rest(seed: int, ids: str, commits_to_kafka: bool) -> None:
    random = Random(seed)
    upstream = Upstream(random, tables=2, partitions=1, transactions=6, ids=ids, sizes=(8, 12), renumbers=True)
    upstream.stream(kills=4)
    batches = Batches(random, upstream, commits_to_kafka=commits_to_kafka)
    batches.assert_all_changes_arrive(fetches=20)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.sampled_from([(1,), (8, 12)]),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    lag=st.integers(1, 40),
    commits_alone=st.booleans(),
)
def test_partitions_that_lag_are_waited_for(
    seed: int, sizes: Sequence[int], ids: str, lag: int, commits_alone: bool
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random,
        tables=3,
        partitions=1,
        transactions=60 // sizes[0],
        ids=ids,
        sizes=sizes,
        renumbers=True,
        commits_alone=commits_alone and ids != "postgres",
    )
    upstream.stream(kills=4)
    batches = Batches(random, upstream, lag=lag)
    batches.assert_all_changes_arrive(fetches=20)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tables=st.integers(1, 3),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
)
def test_changes_in_truncated_topics_arrive(seed: int, tables: int, ids: str) -> None:
    random = Random(seed)
    upstream = Upstream(random, tables=tables, partitions=1, transactions=random.randrange(1, 14), ids=ids)
    kills = random.randrange(3)
    upstream.stream(kills)
    # The last END remains: until the next one arrives, whole transactions cannot be recognized.
    begins = {tp: random.randint(0, end - (tp == TRANSACTIONS)) for tp, end in upstream.topics.ends.items()}
    if kills:
        # A transaction topic that begins inside a part that is repeated later may keep the source waiting.
        begins[TRANSACTIONS] = 0
    batches = Batches(random, upstream, begins=begins)
    for _ in range(random.randrange(4)):
        batches.drain(everything=False)
    batches.drain(everything=True)
    assert batches.is_done
