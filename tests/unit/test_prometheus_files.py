"""The dashboard and the alert rules in `docs/operate/prometheus`: they read metrics that exist, and each alert fires."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
import yaml

from tests.doc_pages import DOCS
from tests.metric_names import families, groupings, selectors
from tests.runnable_pages import checked

FILES = DOCS / "operate" / "prometheus"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
ALERTS = [rule for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
PROMTOOL = which("promtool") or str(Path(sys.executable).with_name("promtool"))
OF_NODE_EXPORTER = {"node_textfile_mtime_seconds": ("file",)}
OF_SCRAPES = {"alertname", "alertstate", "instance", "job"}


def shown() -> Iterator[tuple[str, str]]:
    """Yield each expression with what shows it."""
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


@pytest.mark.parametrize(("name", "expression"), [pytest.param(*each, id=each[0]) for each in shown()])
def test_an_expression_reads_metrics_and_labels_that_exist(name: str, expression: str) -> None:
    known, read = families() | OF_NODE_EXPORTER, selectors(expression)
    labels = OF_SCRAPES.union(*(known[metric] for metric, _ in read))
    assert read, name
    assert all({*selected} <= {*known[metric], *OF_SCRAPES} for metric, selected in read)
    assert groupings(expression) <= labels


def test_every_metric_is_drawn() -> None:
    drawn = {metric for _, expression in shown() for metric, _ in selectors(expression)}
    assert families().keys() - drawn == {"lakehold_table_rows", "lakehold_source_stopped_tables"} | {
        "lakehold_verdict_timestamp_seconds"
    }


def test_promtool_accepts_the_rules_and_each_alert_fires_when_it_should() -> None:
    cases = Path(__file__).with_name("alerts.test.yaml")
    subprocess.run([PROMTOOL, "check", "rules", FILES / "alerts.yaml"], check=True)
    subprocess.run([PROMTOOL, "test", "rules", cases], check=True)
    tested = cases.read_text()
    assert [alert["alert"] for alert in ALERTS if f'alertname="{alert["alert"]}"' not in tested] == []


def test_the_shown_configuration_is_one_of_prometheus(tmp_path: Path) -> None:
    (shown,) = checked("docs/operate/metrics.md", __file__)
    (tmp_path / "prometheus.yml").write_text(shown)
    subprocess.run([PROMTOOL, "check", "config", "--syntax-only", tmp_path / "prometheus.yml"], check=True)
