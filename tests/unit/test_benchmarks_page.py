"""The page of the benchmarks and the README say what the figures in JSON say."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.benchmarks.figures import Figure, as_json
from tests.benchmarks.page import rendered
from tests.benchmarks.results import load, with_measured
from tests.doc_pages import ROOT, section, table_rows
from tests.spark_archive import JAVA_OPTIONS


def test_tables_and_plots_are_those_of_the_figures() -> None:
    different = [path.name for path, text in rendered(load()).items() if path.read_text() != text]
    assert different == [], "python -m tests.benchmarks.page writes them"


def test_figures_of_the_readme_are_the_newest_ones() -> None:
    rows = [*table_rows(section((ROOT / "README.md").read_text(), "## What is proven").partition("`--only` |\n")[2])]
    newest = {(f"`{of.benchmark}`", of.newest.median, of.newest.ratio) for of in load()}
    shown = {(only, _number(result), _number(compared)) for _, result, compared, only in rows}
    assert len(shown) > 3
    assert shown <= newest


def _number(cell: str) -> float:
    return float(cell.partition(" ")[0].replace(",", ""))


def test_a_new_run_is_added_to_the_history_of_its_figure() -> None:
    results = load()
    drain = next(result for result in results if result.benchmark == "drain")
    measured = Figure(drain.name, drain.unit, (4.0, 6.0, 5.0), drain.floor, (4.0, 4.0, 4.0), goal=1.1)
    unknown = Figure("something else", "s", (1.0,), "its floor", (1.0,), goal=None)
    added = with_measured(results, json.loads(as_json([measured, unknown])), "2026-12-01", "busy")
    assert len(added) == len(results)
    (changed,) = set(added) - set(results)
    assert (changed.name, changed.goal, changed.is_met) == (drain.name, 1.1, False)
    assert changed.measured[:-1] == drain.measured
    newest = changed.newest
    assert (newest.median, newest.lowest, newest.highest, newest.floor, newest.ratio) == (5.0, 4.0, 6.0, 4.0, 1.25)


def test_benchmarks_measure_the_spark_of_users() -> None:
    """Import the benchmarks: what they share with the tests changes no Java option of their Spark."""
    program = "import os; before = {**os.environ}; import tests.benchmarks.__main__; assert os.environ == before"
    environment = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
