"""A real lake with its model, on which random commands act."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from lakehold.failpoints import Point
from lakehold.lake import Lake
from lakehold.publish.durable import DurableClient
from tests.whole.model import Past
from tests.whole.topics import Events, Upserts

SOURCE = "feed"
UPSERTED, CAPTURED = TABLES = ("s.t", "s.u")
VIEW = "bi.counts"
SUBSCRIPTION, OUTPUT = "changes", "bi.changes"
CLIENT = "program"
SETTINGS: dict[str, Any] = {"foreign_lag_ms": 0, "retain_history_ms": 0, "expire_grace_ms": 0}
"""The lake keeps only the history that somebody needs, so that maintenance has something to delete."""


class Died(BaseException):
    """The death of the process, which no handler for errors catches."""


@dataclass
class World:
    """A lake, and its model.

    Args:
        open_lake: Opens the lake, each time as another process does.
        directory: A folder for the recorded messages, which does not exist yet.
        random: Draws everything.

    Attributes:
        pasts: What each table showed.
        holds: The table of each hold and the time from which it keeps it, by the hold's name.
        has_view: Whether the view exists.
        is_refreshed: Whether a refresh of the view has ended without dying.
        published_from: The time at which the output of the subscription begins; None: there is no subscription.
        acknowledged: The timestamps that the durable client acknowledged, with their diffs and rows.
        counts: What happened how often.
    """

    open_lake: Callable[[], Lake]
    directory: Path
    random: Random
    pasts: dict[str, Past] = field(init=False)
    holds: dict[str, tuple[str, int]] = field(default_factory=dict)
    has_view: bool = False
    is_refreshed: bool = False
    published_from: int | None = None
    acknowledged: list[tuple[int, list[tuple[int, dict[str, Any]]]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self.lake = self.open_lake()
        self.upserts = Upserts(UPSERTED, self.directory, self.random)
        self.events = Events(CAPTURED, self.directory, self.random)
        self.upserts.write(3)
        self.pasts = {topic.name: Past(topic.log) for topic in (self.upserts, self.events)}
        self.lake.sql(f"CREATE SOURCE {SOURCE} FROM FILES '{self.directory}' FORMAT JSON")
        for name in TABLES:
            self._create(name)
        self.ingest()

    def ingest(self) -> None:
        """Ingest every message."""
        self.lake.ingest(SOURCE)
        self.learn()
        for name, past in self.pasts.items():
            assert past.end == len(past.log.messages), f"{name}: messages are left"

    def create_again(self, name: str) -> None:
        """Drop a table with all that reads it, and create it again, with a new history."""
        self.lake.sql(f"DROP TABLE {name} CASCADE")
        self.holds = {each: held for each, held in self.holds.items() if held[0] != name}
        if name == UPSERTED:
            self.has_view = self.is_refreshed = False
            if self.published_from is not None:
                self.lake.tables.drop_table(OUTPUT)
                self.published_from = None
        else:
            self.client().forget()
            self.acknowledged.clear()
        self._create(name)
        # Until it has caught up, another reader than the one that `learn` follows feeds it.
        while name not in (readable := self.lake.timelines.readable([name])):
            self.lake.ingest(SOURCE)
        log, window = self.pasts[name].log, readable[name]
        times = (window.since_ms, window.upper_ms - 1)
        self.pasts[name] = Past(log, dict.fromkeys(times, len(log.messages)), joined_ms=max(times))

    def client(self) -> DurableClient:
        """Return the durable client."""
        return self.lake.durable(CLIENT, f"SUBSCRIBE {CAPTURED}")

    def _create(self, name: str) -> None:
        topic = self.upserts if name == UPSERTED else self.events
        self.lake.sql(f"CREATE TABLE {name} {topic.creates.format(source=SOURCE, topic=name)}")

    def reopen(self) -> None:
        """Go on in another process, which knows only what the lake keeps."""
        self.lake.close()
        self.lake = self.open_lake()

    @contextmanager
    def dying_at(self, point: Point, nth: int) -> Iterator[None]:
        """Let the process die at the `nth` pass of a failpoint, if it comes there; another process goes on."""
        passed = 0

        def failpoint(here: Point) -> None:
            nonlocal passed
            passed += here == point
            if here == point and passed == nth:
                raise Died

        loaded = [each for name, each in sys.modules.items() if name.startswith("lakehold.")]
        patched = {each: vars(each)["failpoint"] for each in loaded if "failpoint" in vars(each)}
        for module in patched:
            vars(module)["failpoint"] = failpoint
        try:
            yield
        except Died:
            self.counts[f"died at {point}"] += 1
            self.reopen()
        finally:
            for module, original in patched.items():
                vars(module)["failpoint"] = original

    def learn(self) -> None:
        """Take the batches that the lake has committed."""
        found = self.lake.sql(
            f"SELECT mz_timestamp, start_offsets, end_offsets FROM mz_catalog.mz_batches WHERE source = '{SOURCE}' "
            "AND reader = 'main' ORDER BY mz_timestamp"
        )
        for timestamp, *offsets in found.rows:
            start, end = (json.loads(each) for each in offsets)
            for name, past in self.pasts.items():
                if name in end:
                    past.read(timestamp, start.get(name, {}).get("0", 0), end[name]["0"])
