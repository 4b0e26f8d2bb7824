"""The recording that comes with lakehold has every case that a reader of Debezium's changes must handle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehold.demo.recording import expected_rows, unpack
from lakehold.demo.shop_rows import CUSTOMERS, ORDER_ITEMS, ORDERS, SHOP_TABLES, differences
from lakehold.ingest.read.lines import Message, parse


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Message]]:
    directory = tmp_path_factory.mktemp("recording")
    count = unpack(directory)
    found = {path.stem: [parse(line) for line in path.read_bytes().splitlines()] for path in directory.iterdir()}
    assert sum(map(len, found.values())) == count
    return found


def payload(message: Message) -> dict[str, Any] | None:
    return None if message.value is None else json.loads(message.value)["payload"]


def test_every_topic_is_whole_and_in_order(messages: dict[str, list[Message]]) -> None:
    assert set(messages) == {
        "shop.public.customers",
        "shop.public.orders",
        "shop.public.order_items",
        "shop.transaction",
    }
    for topic, lines in messages.items():
        assert {(line.topic, line.partition) for line in lines} == {(topic, 0)}
        assert [line.offset for line in lines] == sorted({line.offset for line in lines})


@pytest.mark.parametrize("table", SHOP_TABLES, ids=lambda table: table.name)
def test_the_recording_has_a_snapshot_and_every_kind_of_change(messages: dict[str, list[Message]], table: Any) -> None:
    changes = [payload(line) for line in messages[f"shop.public.{table.name}"]]
    kinds = Counter("tombstone" if change is None else change["op"] for change in changes)
    assert set(kinds) == {"r", "c", "u", "d", "tombstone"}
    assert kinds["d"] == kinds["tombstone"]


def test_the_recording_has_a_change_of_a_key_and_of_the_schema(
    messages: dict[str, list[Message]], tmp_path: Path
) -> None:
    unpack(tmp_path)
    lines = map(json.loads, (tmp_path / "shop.public.customers.jsonl").read_text().splitlines())
    headers = {name for line in lines for name, _ in line["headers"]}
    assert {"__debezium.newkey", "__debezium.oldkey"} <= headers

    rows = [change["after"] for line in messages["shop.public.customers"] if (change := payload(line))]
    assert {"phone" in row for row in rows if row} == {False, True}


def test_the_changes_add_up_to_the_expected_rows(messages: dict[str, list[Message]]) -> None:
    for table in SHOP_TABLES:
        alive: dict[bytes | None, bool] = {}
        for line in messages[f"shop.public.{table.name}"]:
            change = payload(line)
            alive[line.key] = change is not None and change["op"] != "d"
        # A widened key column would show here: its schema is part of the key's bytes.
        assert sum(alive.values()) == len(expected_rows(table))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda rows: rows[1:], "customers id {first}: not in the lake"),
        (lambda rows: [*rows, ("0", *rows[0][1:])], "customers id 0: in the lake only"),
        (
            lambda rows: [(*rows[0][:2], "Eve", *rows[0][3:]), *rows[1:]],
            "customers id {first}: name is 'Eve', not {name!r}",
        ),
        (lambda rows: [*rows, rows[0]], "customers: {more} rows, not {count}"),
    ],
)
def test_a_difference_is_named(change: Callable[[list[Any]], list[Any]], line: str) -> None:
    rows = expected_rows(CUSTOMERS)
    expected = line.format(first=rows[0][0], name=rows[0][2], more=len(rows) + 1, count=len(rows))
    assert differences(CUSTOMERS, rows, change(rows)) == [expected]


@pytest.mark.parametrize("table", [ORDERS, ORDER_ITEMS], ids=lambda table: table.name)
def test_equal_tables_have_no_difference(table: Any) -> None:
    assert differences(table, expected_rows(table), expected_rows(table)) == []
