"""Damaged transaction topics: no BEGIN or END loses a change, and an unreadable one splits no transaction."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from lakehold.errors import LakeholdError, TransactionIncomplete
from lakehold.lake import Lake, connect
from tests import recorded_files
from tests.fuzz.faults import Fault, Tried
from tests.fuzz.mutations import damaged, other_json
from tests.transaction_files import TRANSACTION_TOPIC, Connector, define

_TABLES = ("orders", "items")
_TRANSACTIONS = 40
_DAMAGED_SHARE = 0.2
_UNEXPECTED = {"table-failed", "ingest-failed", "error"}
"""Codes of errors that say no more than that something failed."""


class _DamagedConnector(Connector):
    """A connector some of whose BEGINs and ENDs are damaged on their way.

    Args:
        directory: Folder of the source.
        chance: The source of randomness.
        is_lying: Damaged messages may be readable, and say something else.

    Attributes:
        sent: The values of the transaction topic, as they arrive.
        share: The share of messages that are damaged.
    """

    def __init__(self, directory: Path, chance: Random, *, is_lying: bool) -> None:
        super().__init__(directory)
        self._folder = directory
        self._chance = chance
        self._is_lying = is_lying
        self.sent: list[bytes | None] = []
        self.share = _DAMAGED_SHARE

    def _write(self, topic: str, key: object, value: object) -> None:
        if topic != TRANSACTION_TOPIC:
            super()._write(topic, key, value)
            return
        content: bytes | None = json.dumps(value).encode()
        # A lost END ends the round: the rest waits for it.
        is_end = content is not None and b"END" in content
        if self._chance.random() < (self.share / 5 if is_end else self.share):
            content = self._bad(content or b"")
        text = recorded_files.line(topic, 0, len(self.sent), content, json.dumps(key).encode())
        recorded_files.append(self._folder / f"{topic}.jsonl", [text])
        self.sent.append(content)

    def _bad(self, content: bytes) -> bytes | None:
        kind = self._chance.choice(["half", "half", "null", "empty"] + 12 * ["lie"] * self._is_lying)
        if kind == "lie":
            others = [each for each in self.sent if each] or [content]
            lies = (
                other_json(content, self._chance),
                damaged(content, others, self._chance),
                self._chance.choice(others),
            )
            return self._chance.choice(lies)
        return {"half": content[: self._chance.randrange(1, len(content))], "null": None, "empty": b""}[kind]


def tried(chance: Random, spark: SparkSession | None = None) -> Iterator[Tried]:
    """Ingest damaged transaction topics into new lakes for ever, one at a time."""
    while True:
        with tempfile.TemporaryDirectory() as directory:
            name = f"fuzz{chance.randrange(10**9)}"
            limit = chance.choice([0, 100_000])
            lake = connect(
                f"{directory}/lake",
                spark=spark,
                driver_read_max_records=limit,
                catalog_name=name,
                transaction_timeout_ms=0,
            )
            spark = spark or lake.spark
            yield _round(lake, Path(directory) / "topics", chance)


def _round(lake: Lake, directory: Path, chance: Random) -> Tried:
    is_lying = chance.random() < 0.7
    connector = _DamagedConnector(directory, chance, is_lying=is_lying)
    define(
        lake, directory, dict.fromkeys(_TABLES, "DEBEZIUM UPSERT"), f"WITH (MAX RECORDS = {chance.choice([60, 1_000])})"
    )
    transactions: list[list[tuple[str, int]]] = []
    for number in range(_TRANSACTIONS + 2):
        # The last transactions are whole, so that every partition shows that the others are over.
        connector.share = 0 if number in (0, _TRANSACTIONS, _TRANSACTIONS + 1) else _DAMAGED_SHARE
        rows = [(table, 10 * number + place) for place, table in enumerate([*chance.choices(_TABLES, k=3), *_TABLES])]
        connector.transaction(*((table, key, key) for table, key in rows))
        transactions.append(rows)
    given = "\n".join(repr(each) for each in connector.sent)
    counts: Counter[str] = Counter(messages=len(connector.sent))
    try:
        for report in lake.ingest("shop"):
            for stop in report.stopped.values():
                counts[f"stopped: {stop.code}"] += 1
                if stop.code in _UNEXPECTED:
                    return Tried(len(connector.sent), (Fault(given, f"stopped by {stop}"),), counts)
    except TransactionIncomplete:
        counts["incomplete"] += 1  # Without its END a transaction waits.
    except BaseException as error:  # noqa: BLE001 - whatever is raised is what is looked for
        if not isinstance(error, LakeholdError) or error.code in _UNEXPECTED:
            return Tried(len(connector.sent), (Fault(given, traceback.format_exc()),), counts)
        counts[f"refused: {error.code}"] += 1
    else:
        counts["ended"] += 1
    catalog = lake.settings.catalog_name
    shown = {(table, row[0]) for table in _TABLES for row in lake.sql(f"SELECT id FROM {catalog}.shop.{table}").rows}
    lost = {row for rows in transactions for row in rows} - shown
    split = [rows for rows in transactions if 0 < len(shown.intersection(rows)) < len(rows)]
    counts.update(rows=len(shown), **{"not taken": len(lost)})
    wrong = [f"lost {sorted(lost)}"] if lost and counts["ended"] else []
    wrong += [f"split {split}"] if split and not is_lying else []
    return Tried(len(connector.sent), tuple(Fault(given, each) for each in wrong), counts)
