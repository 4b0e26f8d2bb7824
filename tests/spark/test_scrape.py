"""A scrape of a real lake has every metric that the alerts and the dashboard read, also beside what cannot be read."""

from __future__ import annotations

import json
import logging
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lakehold.holds.commands import NewHold
from lakehold.lake import Lake
from lakehold.metrics.endpoint import Address, scraped
from tests.metric_names import families
from tests.runnable_pages import checked
from tests.shop_records import ShopRecords

pytestmark = pytest.mark.spark

NOT_HERE = {"lakehold_store_requests_total", "lakehold_publish_failures_total"}
"""Metrics of an object store, and of failures that this lake does not have."""

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def values(url: str) -> Values:
    """Scrape: return each value by its name and labels."""
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def value(found: Values, name: str, **labels: str) -> float | None:
    return found.get((f"lakehold_{name}", tuple(sorted(labels.items()))))


def test_a_scrape_has_what_alerts_and_dashboard_read(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = ShopRecords(lake, tmp_path / "topics")
    shop.write("orders", (1, "new"), (2, "new"))
    shop.write("rates", (1, "one"))
    caplog.set_level(logging.INFO, "lakehold.batches")
    lake.ingest("shop")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "lakehold.batches"]
    _is_as_the_page_shows(json.loads(line))
    lake.sql("CREATE SUBSCRIPTION changes INTO bi.changes AS SUBSCRIBE shop.orders")
    lake.sql("CREATE MATERIALIZED VIEW bi.ids KEY (id) AS SELECT id FROM shop.orders")
    lake.holds.create(NewHold("week", None, ("shop.orders",)))
    lake.publish("changes")
    lake.publish("bi.ids")
    lake.verify("bi.ids")
    shop.break_("rates")
    lake.ingest("shop")
    shop.write("orders", (3, "new"))
    lake.sql(f"CREATE SOURCE gone FROM FILES '{tmp_path}/none' FORMAT JSON")
    lake.sql("CREATE TABLE shop.gone (id BIGINT) FROM SOURCE gone (TOPIC 'gone') ENVELOPE UPSERT")

    with scraped(lake.settings, Address.parse("0")) as url:
        found = values(url)
        assert value(found, "up") == 1
        assert value(found, "table_behind_records", source="shop", table="shop.orders") == 1
        assert value(found, "table_stopped", source="shop", table="shop.rates") == 1
        assert value(found, "table_stopped", source="shop", table="shop.orders") == 0
        assert value(found, "source_reachable", source="shop") == 1
        assert value(found, "source_reachable", source="gone") == 0
        assert value(found, "verdict_success", table="bi.ids", check="query", hold="") == 1
        assert value(found, "subscription_lapsed", kind="subscription", subscription="changes") == 0
        assert value(found, "publish_commits_total", subscription="bi.ids") == 1
        assert value(found, "ingest_failures_total", source="shop", code="bad-input") is not None
        assert value(found, "hold_forced", hold="week") == 0
        has = {(name.removesuffix("_sum"), tuple(label for label, _ in labels)) for name, labels in found}
        wanted = {(name, tuple(sorted(labels))) for name, labels in families().items() if name not in NOT_HERE}
        assert wanted - has == set()

        # A table whose metadata is gone is shown as such, and all others as before.
        for name in ("bi.changes", "bi.ids", "shop.orders"):
            Path(lake.catalog.load_table(name).metadata_location.removeprefix("file://")).unlink()
    with scraped(lake.settings, Address.parse("127.0.0.1:0")) as url:
        found = values(url)
        assert value(found, "table_stopped", source="", table="bi.ids") == 1
        assert value(found, "table_stopped", source="shop", table="shop.orders") == 1
        assert value(found, "table_rows", source="shop", table="shop.rates") == 1
        assert [row[0] for row in lake.sql("SHOW SUBSCRIPTIONS").rows] == ["changes"]


def _is_as_the_page_shows(line: dict[str, object]) -> None:
    (shown,) = [json.loads(text) for text in checked("docs/operate/metrics.md", __file__)]
    assert line.keys() == shown.keys()
    assert isinstance(line["tables"], list)
    assert line["tables"][0].keys() == shown["tables"][0].keys()
    assert isinstance(line["milliseconds"], dict)
    assert line["milliseconds"].keys() == shown["milliseconds"].keys()
