"""Counters for Prometheus: each has a description, and ended processes leave theirs where the docs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from lakehold.metrics.status_families import STATUS_FAMILIES
from tests.doc_pages import inline_code, page, section, table_rows
from tests.metric_names import families

PAGE = page("reference/metrics.md")
METRICS = section(PAGE, "## Counters")
SHOWN = re.compile(r"^```python\n(?P<program>.*?)^```$", re.MULTILINE | re.DOTALL)
COUNTS = "from lakehold.ingest.metrics import DECODES; DECODES.labels(source='shop', by='own').inc()"


def test_every_counter_is_described_with_its_labels() -> None:
    described = {inline_code(counter)[0]: inline_code(labels) for counter, labels in table_rows(METRICS)}
    counted = {name: labels for name, labels in families().items() if name not in STATUS_FAMILIES}
    assert described.keys() == counted.keys()
    assert {name: [label for label in labels if label not in described[name]] for name, labels in counted.items()} == {
        name: [] for name in counted
    }


def test_every_gauge_is_described_with_its_labels() -> None:
    rows = table_rows(section(PAGE, "## Metrics of the lake"))
    described = {inline_code(gauge)[0]: inline_code(labels) for gauge, labels in rows}
    assert described.keys() == STATUS_FAMILIES.keys()
    assert all({*family.labels} <= {*described[name]} for name, family in STATUS_FAMILIES.items())


def test_counts_of_ended_processes_are_shown(tmp_path: Path) -> None:
    shown = SHOWN.search(METRICS)
    assert shown is not None
    (tmp_path / "metrics").mkdir()
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": "metrics"}
    for program in (COUNTS, COUNTS):
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    found = subprocess.run(
        [sys.executable, "-c", shown["program"]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert 'lakehold_ingest_decodes_total{by="own",source="shop"} 2.0' in found.stdout.splitlines()
