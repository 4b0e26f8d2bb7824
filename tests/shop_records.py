"""A shop recorded in a directory: a source over the files there, with a table that a test can break."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from lakehold.lake import Lake
from tests import recorded_files


class ShopRecords:
    """The source `shop` of a lake, with `shop.orders` and `shop.rates`.

    Args:
        lake: The lake.
        directory: Folder of the recorded messages.
    """

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.directory = directory
        self._file = directory / "shop.jsonl"
        self._offsets: Counter[str] = Counter()
        lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
        for topic in ("orders", "rates"):
            lake.sql(f"""
                CREATE TABLE shop.{topic} (id BIGINT, v STRING) FROM SOURCE shop (TOPIC '{topic}')
                ENVELOPE UPSERT WITH (ON ERROR = 'fail')
            """)

    def write(self, topic: str, *rows: tuple[int, str]) -> None:
        """Record the newest values of keys."""
        self._record(topic, [(json.dumps({"id": id_}), json.dumps({"id": id_, "v": v})) for id_, v in rows])

    def break_(self, topic: str) -> None:
        """Record a message that cannot be applied."""
        self._record(topic, [(json.dumps({"id": "x"}), json.dumps({"id": "x"}))])

    def _record(self, topic: str, messages: list[tuple[str, str]]) -> None:
        lines = []
        for key, value in messages:
            lines.append(recorded_files.line(topic, 0, self._offsets[topic], value.encode(), key.encode()))
            self._offsets[topic] += 1
        recorded_files.append(self._file, lines)
