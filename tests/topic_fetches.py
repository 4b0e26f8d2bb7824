"""The ends of a model's topics as a reader fetches them, one partition after the other, while connectors write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from lakehold.model.offsets import Offsets, TopicPartition
from tests.upstream_log import TRANSACTIONS, Topics

OPEN = 0.8
"""The probability that a Kafka transaction continues after a message."""


class TopicFetches:
    """The ends of topics while connectors write them, each partition's end fetched at its own moment.

    Args:
        random: Source of the moments of fetches and the lengths of Kafka transactions.
        topics: Topics that the connectors have written.
        commits_to_kafka: Messages are visible only when their Kafka transaction is committed, in each partition at another
            moment, and in all partitions before the next transaction begins.
        lag: The most moments between the sending and the writing of a message.

    Attributes:
        written: End offsets of the partitions after the last fetch, including invisible messages.
        life: The number of the connector that wrote during the last fetch, from 1.
        sent: The moments at which the messages of each partition were sent.
        began: The moment at which the last fetch began.
    """

    def __init__(self, random: Random, topics: Topics, *, commits_to_kafka: bool, lag: int = 0) -> None:
        self._random = random
        self._lag = lag
        # For each moment the visible and the written ends of each partition.
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
        self.written: Offsets = {}
        self.began = 0

    def during(self, life: int) -> Offsets:
        """Fetch the visible ends while connector number `life` writes, those of the transaction topic first."""
        end = self._lives[life]
        now = max(self._now, self._lives[life - 1])
        now = self._random.randint(now, min(end, now + 20))
        self.began = now
        fetches = []
        for of in (0, 0, 1):
            until = min(end, now + self._random.choice([0, 8, 16]))
            fetches.append({tp: self._moments[self._random.choice([now, until])][of][tp] for tp in self._moments[0][0]})
            now = until
        self._now, self.life = now, life
        first, found, self.written = fetches
        return {**found, TRANSACTIONS: first[TRANSACTIONS]}

    def at_rest(self) -> None:
        """Fetch after all connectors have written everything."""
        self._now = len(self._moments) - 1
        self.began = self._now + self._lag
        self.written = self._moments[self._now][1]

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
        """Write messages in an order in which some partitions lag behind the others."""
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
