"""However transactions overlap, topics are cut and connectors are killed: each batch ends at a commit, and all comes in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.offsets import Offsets, TopicPartition
from lakehold.ingest.transactions.cut import cut
from lakehold.ingest.transactions.passed import Passed
from tests.upstream_log import TRANSACTIONS, State, Tables, Topics, Upstream, is_of_transactions

EXAMPLES = 400
OPEN = 0.8
"""How often a Kafka transaction goes on behind a message."""
IN_TIME = 0.7
"""How often all topics are sent in one order."""


class Looks:
    """What is seen of topics while connectors write them: each partition's end at a moment of its own.

    Args:
        random: Of when they are looked at, and of how far Kafka transactions go.
        topics: Have been written.
        commits_to_kafka: Messages are visible only when their Kafka transaction is committed: in each partition in its own time,
            and in all of them before the next one begins.
        one_file: All partitions are in one file, which is looked at once.
        lag: How many moments after it was sent a message is written at the latest.

    Attributes:
        seen: Where the partitions ended by the first of the last two looks.
        written: Where those of the transaction topic ended between the two, with what was not visible; the others behind them.
        life: The number of the connector that wrote then, from 1.
        sent: Of each partition the moments at which its messages were sent.
        arrived_until: What was sent by this moment is written; None: all that was sent.
    """

    def __init__(self, random: Random, topics: Topics, *, commits_to_kafka: bool, one_file: bool, lag: int = 0) -> None:
        self._random = random
        self._one_file = one_file
        self._lag = lag
        # At each moment what is visible of each partition, and what is written to it.
        self._moments: list[tuple[Offsets, Offsets]] = []
        at_first = {tp: end - topics.order.count(tp) for tp, end in topics.ends.items()}
        self._remember(at_first, at_first)
        self.sent: dict[TopicPartition, list[int]] = {tp: [0] * end for tp, end in at_first.items()}
        self._lives = [0]
        sent = 0
        for life in [*topics.lives, topics.ends]:
            until = sum(life.values()) - sum(at_first.values())
            if lag:
                self._write_late(topics.order[sent:until])
            else:
                self._write(topics.order[sent:until], commits_to_kafka=commits_to_kafka)
            self._lives.append(len(self._moments) - 1)
            sent = until
        self._now, self.life = 0, 1
        self.seen: Offsets = {}
        self.written: Offsets = {}
        self.arrived_until: int | None = None

    def during(self, life: int) -> Offsets:
        """Look twice while connector number `life` writes; what the second look sees."""
        end = self._lives[life]
        now = max(self._now, self._lives[life - 1])
        now = self._random.randint(now, min(end, now + 20))
        self.arrived_until = now - self._lag if self._lag else None
        looks = []
        for what in (0, 1, 0, 1):
            until = min(end, now + self._random.choice([0, 8, 16]))
            looks.append({tp: self._moments[self._random.choice([now, until])][what][tp] for tp in self._moments[0][0]})
            now = until
        self._now, self.life = now, life
        if self._one_file:
            self.seen, self.written = {}, {}
            return self._moments[now][1]
        self.seen, between, found, behind = looks
        self.written = {tp: between[tp] if is_of_transactions(tp) else at for tp, at in behind.items()}
        return found

    def at_rest(self) -> None:
        """Look when all have."""
        self._now = len(self._moments) - 1
        self.arrived_until = None
        self.seen, self.written = ({}, {}) if self._one_file else self._moments[self._now]

    def _write(self, order: Sequence[TopicPartition], *, commits_to_kafka: bool) -> None:
        visible, written = (dict(ends) for ends in self._moments[-1])
        for number, tp in enumerate(order, 1):
            self.sent[tp].append(len(self._moments))
            written[tp] += 1
            if not commits_to_kafka:
                visible[tp] += 1
            self._remember(visible, written)
            if commits_to_kafka and number < len(order) and self._random.random() < OPEN:
                continue
            for committed in self._random.sample(list(written), len(written)):
                if visible[committed] < written[committed]:
                    visible[committed] = written[committed]
                    self._remember(visible, written)

    def _write_late(self, order: Sequence[TopicPartition]) -> None:
        """Some partitions lag behind the others."""
        first = len(self._moments)
        lags = {tp: self._random.choice([0, self._lag]) for tp in self._moments[-1][1]}
        arriving: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for moment, tp in enumerate(order, first):
            self.sent[tp].append(moment)
            arriving[moment + lags[tp]].append(tp)
        ends = dict(self._moments[-1][1])
        for moment in range(first, first + len(order) + self._lag):
            for tp in arriving[moment]:
                ends[tp] += 1
            self._remember(ends, ends)

    def _remember(self, visible: Offsets, written: Offsets) -> None:
        self._moments.append((dict(visible), dict(written)))


class Batches:
    """A source that takes whole transactions from topics of which it sees more each time.

    Args:
        random: Of what it sees, and of how large its batches are.
        upstream: Has been streamed.
        knows_partitions: As brokers do, and directories of files do not.
        commits_to_kafka: The connector sends in Kafka transactions.
        lag: If it does not: how many moments after it was sent a message is written at the latest.
        begins: Where each partition begins; what was before is deleted.
    """

    def __init__(
        self,
        random: Random,
        upstream: Upstream,
        *,
        knows_partitions: bool,
        commits_to_kafka: bool = False,
        lag: int = 0,
        begins: Offsets | None = None,
    ) -> None:
        self._random = random
        self._topics: Topics = upstream.topics
        self._history = upstream.history() if begins is None else None
        self._numbers_anew = upstream.numbers_anew
        self._knows_partitions = knows_partitions
        self._position: Offsets = dict.fromkeys(self._topics.ends, 0) if begins is None else begins
        # What was deleted had ended.
        self._seen: Offsets = {**self._position, TRANSACTIONS: self._topics.ends[TRANSACTIONS] if begins else 0}
        self._passed = Passed(cut_off=frozenset(tp for tp, at in self._position.items() if at > 0))
        self._looks = Looks(
            random, upstream.topics, commits_to_kafka=commits_to_kafka, one_file=not knows_partitions, lag=lag
        )
        self._commit = 0
        self.tables = Tables()

    def drain(self, *, everything: bool) -> None:
        """See some more, or everything, and take what is whole of it."""
        if everything:
            self._seen = self._topics.ends
            self._looks.at_rest()
        else:
            self._seen = self._seen_of_life()
        while self._batch(self._random.choice([2, 5, 20])):
            pass

    def _seen_of_life(self) -> Offsets:
        """Some more of what one connector wrote, all that the ones before it did."""
        lives = [dict.fromkeys(self._seen, 0), *self._topics.lives, self._topics.ends]
        seen_up = [
            n for n, life in enumerate(lives[1:], 1) if any(at > lives[n - 1][tp] for tp, at in self._seen.items())
        ]
        life = self._random.randint(max([self._looks.life, *seen_up]), len(lives) - 1)
        before = {tp: max(at, lives[life - 1][tp]) for tp, at in self._seen.items()}
        seen = {tp: self._random.randint(at, lives[life][tp]) for tp, at in before.items()}
        if self._history is None:
            # Where the beginning was deleted, all ENDs are seen.
            return seen
        found = self._looks.during(life)
        # Other topics may be late, or ahead, by any time, where what a connector sent before it was killed is not taken for it.
        is_in_time = self._numbers_anew or self._random.random() < IN_TIME
        return {tp: max(before[tp], found[tp]) if is_in_time or is_of_transactions(tp) else seen[tp] for tp in seen}

    def assert_all_comes_in(self, last: State) -> None:
        """Take everything: the tables are what upstream was in the end."""
        self.drain(everything=True)
        assert self.tables.state == last
        assert self.is_done

    @property
    def is_done(self) -> bool:
        return self._position == self._topics.ends

    def _batch(self, share: int) -> bool:
        stops = {tp: min(self._seen[tp], at + share) for tp, at in self._position.items()}
        unread = {tp for tp, seen in self._seen.items() if stops[tp] < seen}
        log = self._topics.log(
            self._position,
            stops,
            unread=unread,
            knows_partitions=self._knows_partitions,
            seen=self._looks.seen,
            written=self._looks.written,
            sent=self._looks.sent,
            arrived_until=self._looks.arrived_until,
        )
        found = cut(log, Passed.from_json(self._passed.to_json()))
        if found.stops == self._position:
            return bool(unread) and self._batch(2 * share)
        self.tables.take(self._topics, self._position, found.stops)
        self._position, self._passed = found.stops, found.passed
        if self._history is not None:
            self._assert_at_commit(self._history)
        return True

    def _assert_at_commit(self, history: Sequence[State]) -> None:
        """The tables are what upstream was after some commit, none before the last one seen."""
        at = [number for number, state in enumerate(history) if state == self.tables.state]
        later = [number for number in at if number >= self._commit]
        assert later, f"no commit at or behind {self._commit} left {self.tables.state}; such are {at}"
        self._commit = later[0]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tables=st.integers(1, 3),
    partitions=st.integers(1, 3),
    kills=st.integers(0, 3),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    numbers_anew=st.booleans(),
    knows_partitions=st.booleans(),
    transaction_partitions=st.sampled_from([1, 1, 2, 3]),
    commits_to_kafka=st.booleans(),
)
def test_every_batch_ends_at_a_commit_and_all_comes_in(
    seed: int,
    tables: int,
    partitions: int,
    kills: int,
    ids: str,
    numbers_anew: bool,
    knows_partitions: bool,
    transaction_partitions: int,
    commits_to_kafka: bool,
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random,
        tables=tables,
        partitions=partitions,
        transaction_partitions=transaction_partitions,
        transactions=random.randrange(14),
        ids=ids,
        numbers_anew=numbers_anew,
    )
    upstream.stream(kills)
    batches = Batches(random, upstream, knows_partitions=knows_partitions, commits_to_kafka=commits_to_kafka)
    for _ in range(random.randrange(8)):
        batches.drain(everything=False)
    batches.assert_all_comes_in(upstream.history()[-1])


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(2, 3),
    kills=st.integers(0, 2),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    knows_partitions=st.booleans(),
    commits_to_kafka=st.booleans(),
)
def test_an_end_is_not_taken_before_one_that_was_not_looked_at(
    seed: int, partitions: int, kills: int, ids: str, knows_partitions: bool, commits_to_kafka: bool
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random, tables=4, partitions=1, transaction_partitions=partitions, transactions=30, ids=ids, sizes=(1,)
    )
    upstream.stream(kills)
    batches = Batches(random, upstream, knows_partitions=knows_partitions, commits_to_kafka=commits_to_kafka)
    for _ in range(12):
        batches.drain(everything=False)
    batches.assert_all_comes_in(upstream.history()[-1])


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    commits_to_kafka=st.booleans(),
)
def test_what_was_sent_before_a_kill_is_not_taken_for_the_rest(seed: int, ids: str, commits_to_kafka: bool) -> None:
    random = Random(seed)
    upstream = Upstream(random, tables=2, partitions=1, transactions=6, ids=ids, sizes=(8, 12), numbers_anew=True)
    upstream.stream(kills=4)
    batches = Batches(random, upstream, knows_partitions=True, commits_to_kafka=commits_to_kafka)
    for _ in range(20):
        batches.drain(everything=False)
    batches.assert_all_comes_in(upstream.history()[-1])


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    transaction_partitions=st.integers(1, 3),
    sizes=st.sampled_from([(1,), (8, 12)]),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    lag=st.integers(1, 40),
)
def test_partitions_that_lag_are_waited_for(
    seed: int, transaction_partitions: int, sizes: Sequence[int], ids: str, lag: int
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random,
        tables=3,
        partitions=1,
        transaction_partitions=transaction_partitions,
        transactions=60 // sizes[0],
        ids=ids,
        sizes=sizes,
        numbers_anew=True,
    )
    upstream.stream(kills=4)
    batches = Batches(random, upstream, knows_partitions=True, lag=lag)
    for _ in range(20):
        batches.drain(everything=False)
    batches.assert_all_comes_in(upstream.history()[-1])


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tables=st.integers(1, 3),
    ids=st.sampled_from(["postgres", "binlog", "gtid"]),
    knows_partitions=st.booleans(),
)
def test_what_is_left_of_topics_comes_in(seed: int, tables: int, ids: str, knows_partitions: bool) -> None:
    random = Random(seed)
    upstream = Upstream(random, tables=tables, partitions=1, transactions=random.randrange(1, 14), ids=ids)
    kills = random.randrange(3)
    upstream.stream(kills)
    # The last END is left: before the next one nobody can tell which transactions were whole.
    begins = {tp: random.randint(0, end - (tp == TRANSACTIONS)) for tp, end in upstream.topics.ends.items()}
    if kills:
        # A transaction topic that begins amid what is repeated later may keep the source waiting.
        begins[TRANSACTIONS] = 0
    batches = Batches(random, upstream, knows_partitions=knows_partitions, begins=begins)
    for _ in range(random.randrange(4)):
        batches.drain(everything=False)
    batches.drain(everything=True)
    assert batches.is_done
