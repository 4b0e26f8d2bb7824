"""The page on change data capture: its events are recorded ones, and its figures are those of the events."""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lakehold.demo.recording import unpack
from tests.doc_pages import ROOT

PAGE = (ROOT / "docs" / "change-data-capture.md").read_text()
BLOCKS = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recording")
    unpack(directory)
    return directory


def payloads(recording: Path, topic: str) -> dict[int, Any]:
    """Return the values of a topic's messages by offset."""
    messages = map(json.loads, (recording / f"{topic}.jsonl").read_text().splitlines())
    values = {m["offset"]: m["value"] and json.loads(base64.b64decode(m["value"])) for m in messages}
    return {offset: value and value["payload"] for offset, value in values.items()}


def test_the_event_is_the_recorded_message(recording: Path) -> None:
    event = json.loads(BLOCKS[0])
    orders = payloads(recording, "shop.public.orders")
    assert event == orders[103]
    assert "message 103 in topic `shop.public.orders`" in PAGE
    assert Decimal(int.from_bytes(base64.b64decode(event["after"]["total"]), signed=True)) / 100 == Decimal("118.95")
    assert "the number 11895 as bytes in base64" in PAGE
    assert "makes it 118.95" in PAGE
    deleted = [offset for offset, value in orders.items() if value and value["op"] == "d"]
    assert deleted
    assert all(orders[offset + 1] is None for offset in deleted), "a tombstone follows each delete"


def test_the_transaction_metadata_are_those_of_the_event(recording: Path) -> None:
    number = json.loads(BLOCKS[0])["source"]["txId"]
    recorded = [p for p in payloads(recording, "shop.transaction").values() if p["id"].startswith(f"{number}:")]
    assert [json.loads(line) for line in BLOCKS[1].splitlines()] == recorded
