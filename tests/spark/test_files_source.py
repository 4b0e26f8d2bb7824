"""A source over recorded files: each line becomes a record or is reported exactly once, in whichever process reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lakehold.ingest.read.line_index import shared_index
from lakehold.lake import Lake
from lakehold.model.offsets import to_json
from lakehold.model.readers import MAIN_READER
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.numbered_shop import NumberedShop

pytestmark = pytest.mark.spark


def orders(*offsets: int) -> list[str]:
    return [recorded_files.line("orders", 0, n, b'{"v": "%d"}' % n, b'{"k": %d}' % n) for n in offsets]


def reported(lake: Lake) -> Sequence[tuple[str, str]]:
    """Return the malformed lines that were recorded, by file."""
    return lake.sql(
        "SELECT topic, CAST(value AS STRING) FROM mz_catalog.mz_source_errors"
        " WHERE reason = 'malformed-line' ORDER BY topic, offset"
    ).rows


def ingested(shop: NumberedShop) -> tuple[int, int]:
    """Ingest like a new process, without an index of the files; return the numbers of records and of malformed lines."""
    shared_index.cache_clear()
    reports = shop.lake.ingest("shop")
    return sum(report.records for report in reports), sum(report.malformed for report in reports)


def test_malformed_lines_are_reported_once_even_when_tables_are_added_later(
    make_lake: LakeFactory, tmp_path: Path
) -> None:
    shop = NumberedShop(make_lake(), tmp_path / "topics")
    shop.table("orders", "orders")
    shop.write("orders", 3)
    recorded_files.append(shop.directory / "orders.jsonl", ["first"])
    shop.write("items", 3)
    recorded_files.append(shop.directory / "items.jsonl", ["second"])
    assert ingested(shop) == (3, 2)
    shop.table("items", "items")
    recorded_files.append(shop.directory / "orders.jsonl", ["third"])
    assert ingested(shop) == (3, 1)
    recorded_files.append(shop.directory / "new.jsonl", ["fourth"])
    assert [ingested(shop), ingested(shop)] == [(0, 1), (0, 0)]
    assert (shop.rows("orders"), shop.rows("items")) == (3, 3)
    assert shop.lake.sql("SELECT DISTINCT table_name FROM mz_catalog.mz_source_errors").rows == [(None,)]
    assert reported(shop.lake) == [
        ("items.jsonl", "second"),
        ("new.jsonl", "fourth"),
        ("orders.jsonl", "first"),
        ("orders.jsonl", "third"),
    ]


def test_an_older_lake_goes_on_where_it_ended(make_lake: LakeFactory, tmp_path: Path) -> None:
    shop = NumberedShop(make_lake(), tmp_path / "topics")
    shop.table("orders", "orders")
    recorded_files.append(shop.directory / "a.jsonl", [*orders(0, 1, 2, 3), "no message"])
    assert ingested(shop) == (4, 1)
    # A lake of version 0.1 stored this position after a batch of four messages; the file has grown since.
    stored = '{"$files/a.jsonl":{"0":551},"orders":{"0":4}}'
    assert to_json(shop.lake.batches.readers("shop")[MAIN_READER].position) == stored
    recorded_files.append(shop.directory / "a.jsonl", [*orders(4), "nor this", *orders(5)])
    assert ingested(shop) == (2, 1)
    assert shop.rows("orders") == 6
    assert reported(shop.lake) == [("a.jsonl", "no message"), ("a.jsonl", "nor this")]
