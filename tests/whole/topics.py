"""The topics of a random run: one of upserts and one of Debezium's events, each written together with its model."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tests import recorded_files
from tests.debezium_messages import Topic
from tests.whole.model import Log

KEYS = 6
"""Few, so that each is written again and again."""


class Upserts:
    """A topic in which a message sets the row of a key, or deletes it."""

    creates = "(id BIGINT, n BIGINT) FROM SOURCE {source} (TOPIC '{topic}') ENVELOPE UPSERT"

    def __init__(self, name: str, directory: Path, random: Random) -> None:
        self.name, self.log = name, Log()
        self._directory, self._random = directory, random

    def write(self, changes: int) -> None:
        """Write random changes."""
        lines = []
        for _ in range(changes):
            key = self._random.randrange(KEYS)
            row = None if self._random.random() < 0.3 else {"id": key, "n": number(self._random)}
            value = None if row is None else json.dumps(row).encode()
            offset = len(self.log.messages)
            lines.append(recorded_files.line(self.name, 0, offset, value, json.dumps({"id": key}).encode()))
            self.log.messages.append((key, row))
        recorded_files.append(self._directory / f"{self.name}.jsonl", lines)


class Events:
    """A topic of a Debezium connector, which repeats messages and whose table gets new columns."""

    creates = "FROM SOURCE {source} (TOPIC '{topic}') ENVELOPE DEBEZIUM"

    def __init__(self, name: str, directory: Path, random: Random) -> None:
        self.name, self.log = name, Log()
        self._directory, self._random = directory, random
        self._topic = Topic(name, {"id": {"type": "int64"}, "n": {"type": "int64"}})
        rows = [self._row(key) for key in range(3)]
        self._topic.snapshot(rows)
        self.log.messages += [(row["id"], row) for row in rows]
        self._topic.write(directory)

    def write(self, changes: int) -> None:
        """Write random changes, some of them twice."""
        topic, messages = self._topic, self.log.messages
        rows = self.log.rows()
        for _ in range(changes):
            key = self._random.randrange(KEYS)
            before = rows.get(key)
            if before is None:
                row = rows[key] = self._row(key)
                topic.create(row)
                messages.append((key, row))
            elif self._random.random() < 0.4:
                topic.delete(before)
                messages += [(key, None), None]
                del rows[key]
            else:
                row = rows[key] = self._row(key)
                topic.update(before, row)
                messages.append((key, row))
        if self._random.random() < 0.3:
            again = min(2, len(topic.lines))
            topic.resend(again)
            messages += [None] * again
        topic.write(self._directory)

    def add_column(self) -> None:
        """Give the table one more column, which rows from before do not have."""
        self._topic.columns[f"c{len(self._topic.columns)}"] = {"type": "int64"}

    def _row(self, key: int) -> dict[str, Any]:
        return {name: key if name == "id" else number(self._random) for name in self._topic.columns}


def number(random: Random) -> int | None:
    """Draw one of few values, or none."""
    return None if random.random() < 0.2 else random.randrange(3)
