"""What judging the changes of one batch to one table gives, wherever it is done."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.ingest.changes import PHASE, Phase
from lakehold.ingest.judge.arrivals import Arrivals
from lakehold.ingest.marks import Position

WINS = "_lh_wins"
COUNTS = "_lh_counts"
SNAPSHOT_PHASES = (Phase.SNAPSHOT.value, Phase.SNAPSHOT_END.value)


def in_snapshot() -> SparkColumn:
    """Whether a change is a row of a connector's snapshot, as a condition on changes."""
    return F.col(PHASE).isin(*SNAPSHOT_PHASES)


class Judging(ABC):
    """The changes of one batch to one table, and what decides."""

    @abstractmethod
    def judge(self, *, after: Position | None = None, not_below: Position | None = None) -> Arrivals:
        """Judge all changes, and count them. Judging again replaces what was found before.

        Args:
            after: Changes at or below it do not count: a TRUNCATE there took them.
            not_below: Changes below it do not count: a snapshot taken anew stands there.
        """

    @abstractmethod
    def fill(self) -> None:
        """Take unavailable values from the newest earlier change of the key in this batch.

        What no change of this batch knows stays named in `_lh_kept`: the stored value is kept.
        """

    @abstractmethod
    def frame(self) -> DataFrame:
        """The changes as judged: none is dropped, so that everything that arrived can be accounted for.

        Returns:
            The frame of `Changes` and `_lh_counts boolean` (the change is not a repetition), `_lh_wins boolean` (it decides
            its key's state).
        """

    @abstractmethod
    def release(self) -> None:
        """Let go of what `frame` reads from."""
