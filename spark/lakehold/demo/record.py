"""Makes the recording that comes with lakehold, from a real PostgreSQL, Debezium and Kafka.

    python -m lakehold.demo.record --output spark/lakehold/demo/recording

It starts its own stack in a temporary directory and on free ports, opens the shop, captures it as JSON with schemas, and
runs the workload. It waits until everything has arrived, and writes the topics and PostgreSQL's rows at that time. The
same seed gives the same ids, prices and times of the shop, but not the same log positions, transaction numbers and times of
Debezium.
"""

from __future__ import annotations

import base64
import json
import logging
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Annotated, cast

import typer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from lakehold import stack
from lakehold.demo import recording
from lakehold.demo.database import ShopDatabase, open_shop, run
from lakehold.demo.shop_rows import SHOP_TABLES
from lakehold.demo.workload import Workload
from lakehold.errors import UpstreamUnavailable
from lakehold.stack import StackAddresses, StackPorts

log = logging.getLogger(__name__)

_ARRIVES_WITHIN_S = 120.0
_POLL_S = 1.0


def record(output: Path, *, seed: int, customers: int, transactions: int) -> int:
    """Make a recording in `output`; returns its number of messages."""
    workload = Workload(seed, alter_after=transactions // 2)
    opening = workload.opening(customers)
    with _own_stack() as addresses, open_shop(addresses, "shop", "shop", opening) as shop:
        shop.capture("json")
        with closing(_Arrivals(shop)) as arrivals, shop.connect() as connection:
            arrivals.read_until_snapshot_has(len(opening.statements))
            numbers = [run(connection, each) for each in islice(workload.transactions(), transactions)]
            arrivals.read_until_transaction(numbers[-1])
            rows = {table: shop.rows(table) for table in SHOP_TABLES}
        recording.write(output, arrivals.lines, rows)
    return sum(len(lines) for lines in arrivals.lines.values())


class _Arrivals:
    """The messages that have arrived in a shop's topics, as lines of a FILES source.

    Attributes:
        lines: By topic, in order.
    """

    def __init__(self, shop: ShopDatabase) -> None:
        self.lines: dict[str, list[str]] = {topic: [] for topic in shop.topics}
        self._transactions = shop.topics[-1]
        self._snapshot_rows = 0
        self._events: Counter[str] = Counter()
        self._announced: Counter[str] = Counter()
        self._ended: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": shop.addresses.kafka,
                "group.id": shop.name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in shop.topics])

    def read_until_snapshot_has(self, rows: int) -> None:
        """Read until that many rows of the first snapshot have arrived."""
        self._read_until(lambda: self._snapshot_rows >= rows)

    def read_until_transaction(self, number: int) -> None:
        """Read until a transaction has ended, with all changes that it and earlier transactions announced."""
        self._read_until(lambda: number in self._ended and self._events == self._announced)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _read_until(self, is_reached: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _ARRIVES_WITHIN_S
        while not is_reached():
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._take(message)
            elif time.monotonic() > deadline_s:
                raise UpstreamUnavailable(
                    f"the changes did not arrive within {_ARRIVES_WITHIN_S:.0f} s",
                    detail=f"Announced: {dict(self._announced)}. Arrived: {dict(self._events)}.",
                )

    def _take(self, message: Message) -> None:
        topic, value = str(message.topic()), message.value()
        self.lines[topic].append(_line(message))
        payload = json.loads(value)["payload"] if value is not None else None
        if payload is None:
            return
        if topic == self._transactions:
            if payload["status"] == "END":
                self._ended.add(int(payload["id"].split(":")[0]))
                self._announced.update(
                    {each["data_collection"]: each["event_count"] for each in payload["data_collections"] or ()}
                )
        elif payload["op"] == "r":
            self._snapshot_rows += 1
        else:
            self._events[f"{payload['source']['schema']}.{payload['source']['table']}"] += 1


def _line(message: Message) -> str:
    _, timestamp_ms = message.timestamp()
    return json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": timestamp_ms,
            "key": _base64(message.key()),
            "value": _base64(message.value()),
            "headers": [[name, _base64(value)] for name, value in _headers(message)],
        }
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # The client's annotation also allows a mapping, for messages to send.
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@contextmanager
def _own_stack() -> Iterator[StackAddresses]:
    with tempfile.TemporaryDirectory(prefix="lakehold-record-") as name:
        directory = Path(name)
        # If this user is root, PostgreSQL runs as another user, who must enter the directory.
        directory.chmod(0o755)
        try:
            yield stack.up(directory, _free_ports(), lambda event: log.info("%s: %s", event.server, event.state))
        finally:
            stack.down(directory, delete_data=True)


def _free_ports() -> StackPorts:
    with ExitStack() as sockets:
        probes = [sockets.enter_context(socket.socket()) for _ in fields(StackPorts)]
        for probe in probes:
            probe.bind((stack.HOST, 0))
        return StackPorts(*(probe.getsockname()[1] for probe in probes))


def main(
    *,
    output: Annotated[Path, typer.Option(help="Directory that takes the recording.")],
    seed: int = 3,
    customers: Annotated[int, typer.Option(help="Before the first change, and as many orders.")] = 80,
    transactions: Annotated[int, typer.Option(help="After it.")] = 600,
) -> None:
    """Record the demo's change log."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    messages = record(output, seed=seed, customers=customers, transactions=transactions)
    log.info("recorded %d messages in %s", messages, output)


if __name__ == "__main__":
    typer.run(main)
