"""However transactions overlap, topics are cut and connectors are killed: each batch ends at a commit, and all comes in."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.offsets import Offsets
from lakehold.ingest.transactions.cut import cut
from lakehold.ingest.transactions.passed import Passed
from tests.upstream_log import TRANSACTIONS, State, Tables, Topics, Upstream

EXAMPLES = 400


class Batches:
    """A source that takes whole transactions from topics of which it sees more each time.

    Args:
        random: Of what it sees, and of how large its batches are.
        upstream: Has been streamed.
        knows_partitions: As brokers do, and directories of files do not.
        begins: Where each partition begins; what was before is deleted.
    """

    def __init__(
        self, random: Random, upstream: Upstream, *, knows_partitions: bool, begins: Offsets | None = None
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
        self._commit = 0
        self.tables = Tables()

    def drain(self, *, everything: bool) -> None:
        """See some more, or everything, and take what is whole of it."""
        ends = self._topics.ends
        self._seen = ends if everything else self._seen_of_life()
        while self._batch(self._random.choice([2, 5, 20])):
            pass

    def _seen_of_life(self) -> Offsets:
        """Some more of what one connector wrote, all that the ones before it did."""
        lives = [dict.fromkeys(self._seen, 0), *self._topics.lives, self._topics.ends]
        seen_up = [
            n for n, life in enumerate(lives[1:], 1) if any(at > lives[n - 1][tp] for tp, at in self._seen.items())
        ]
        life = self._random.randint(max(seen_up, default=1), len(lives) - 1)
        if self._numbers_anew:
            # What a connector had sent before it was killed can be taken for what has not come (`runs.py`).
            return lives[life]
        before = {tp: max(at, lives[life - 1][tp]) for tp, at in self._seen.items()}
        return {tp: self._random.randint(at, lives[life][tp]) for tp, at in before.items()}

    @property
    def is_done(self) -> bool:
        return self._position == self._topics.ends

    def _batch(self, share: int) -> bool:
        stops = {tp: min(self._seen[tp], at + share) for tp, at in self._position.items()}
        unread = {tp for tp, seen in self._seen.items() if stops[tp] < seen}
        log = self._topics.log(self._position, stops, unread=unread, knows_partitions=self._knows_partitions)
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
)
def test_every_batch_ends_at_a_commit_and_all_comes_in(
    seed: int, tables: int, partitions: int, kills: int, ids: str, numbers_anew: bool, knows_partitions: bool
) -> None:
    random = Random(seed)
    upstream = Upstream(
        random,
        tables=tables,
        partitions=partitions,
        transactions=random.randrange(14),
        ids=ids,
        numbers_anew=numbers_anew,
    )
    upstream.stream(kills)
    batches = Batches(random, upstream, knows_partitions=knows_partitions)
    for _ in range(random.randrange(8)):
        batches.drain(everything=False)
    batches.drain(everything=True)
    assert batches.tables.state == upstream.history()[-1]
    assert batches.is_done


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
