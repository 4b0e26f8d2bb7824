"""The statements of the pages in docs/concepts run one after the other, and show what the pages say of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakehold.demo.recording import unpack
from lakehold.lake import Lake
from lakehold.sql.result import Result
from lakehold.timeline.timelines import common_window
from tests.conftest import LakeFactory
from tests.doc_pages import ROOT

pytestmark = pytest.mark.spark

SQL = re.compile(r"^```sql\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TIME = re.compile(r"\b\d{13}\b")


def test_the_statements_of_the_concepts_show_what_the_pages_say(make_lake: LakeFactory, tmp_path: Path) -> None:
    unpack(tmp_path / "recording")
    lake = make_lake(max_batch_records=300)
    lake.sql(
        f"CREATE SOURCE shop FROM FILES '{tmp_path / 'recording'}' FORMAT JSON TRANSACTION METADATA TOPIC 'shop.transaction';"
        "CREATE TABLE shop.customers FROM SOURCE shop (TOPIC 'shop.public.customers') ENVELOPE DEBEZIUM;"
        "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'shop.public.orders') ENVELOPE DEBEZIUM"
    )
    lake.ingest("shop")

    (batches,) = results(lake, "index.md", ["shop.orders"])
    (snapshots,) = results(lake, "batch.md", ["shop.orders"])
    assert {int(at) for _, _, at, _ in snapshots.rows} <= {at for at, _ in batches.rows}

    changes, _ = results(lake, "time.md", ["shop.orders"])
    assert changes.columns[:2] == ("mz_timestamp", "mz_diff")
    assert changes.rows
    assert "hold_report" in lake.catalog.load_table("shop.orders").refs()

    results(lake, "joining.md", ["shop.orders"])
    lake.ingest("shop")
    (wrong_totals,) = results(lake, "transactions.md", ["shop.orders", "shop.order_items"])
    assert wrong_totals.rows == []
    assert lake.sql("SELECT count(*) > 0 FROM shop.order_items").rows == [(True,)]


def results(lake: Lake, page: str, tables: list[str]) -> list[Result]:
    """Run the blocks of a page at times of the lake in place of the page's, without sources in Kafka; return their results."""
    text = (ROOT / "docs" / "concepts" / page).read_text()
    blocks = [match["text"] for match in SQL.finditer(text) if "KAFKA CONNECTION" not in match["text"]]
    shown = sorted({time for block in blocks for time in TIME.findall(block)})
    since_ms, upper_ms = common_window([*lake.timelines.of(tables).values()])
    times = [since_ms, upper_ms][: len(shown)]
    real = {time: str(at_ms) for time, at_ms in zip(shown, times, strict=True)}
    return [lake.sql(TIME.sub(lambda found: real[found[0]], block)) for block in blocks]
