"""Counters for Prometheus: each has a description, and ended processes leave theirs where the docs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from prometheus_client import REGISTRY

from lakehold.ingest.metrics import DECODES
from lakehold.subscribe.metrics import DIFFS, SUBSCRIBES
from tests.doc_pages import inline_code, page, section, table_rows

METRICS = section(page("reference/metrics.md"), "## Counters")
SHOWN = re.compile(r"^```python\n(?P<program>.*?)^```$", re.MULTILINE | re.DOTALL)
COUNTS = "from lakehold.ingest.metrics import DECODES; DECODES.labels(source='shop', by='own').inc()"


def test_every_counter_is_described_with_its_labels() -> None:
    described = {inline_code(counter)[0]: inline_code(labels) for counter, labels in table_rows(METRICS)}
    counters = [DECODES, SUBSCRIBES, DIFFS]
    assert {metric.name for metric in REGISTRY.collect() if metric.name.startswith("lakehold")} == {
        counter._name for counter in counters
    }
    assert described.keys() == {f"{counter._name}_total" for counter in counters}
    for counter in counters:
        assert set(counter._labelnames) <= set(described[f"{counter._name}_total"])


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
