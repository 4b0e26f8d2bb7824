"""`lakehold status` on a terminal: a picture that a person reads, once or again and again, and rows for programs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.cli.status_picture import picture
from lakehold.lake import connect
from lakehold.overview.lag import Advance, InputChange, follower_lag, lag_of
from lakehold.state.batch_protocol import Batch
from tests.doc_pages import page
from tests.overviews import HELD, HOUR_MS, NOW_MS, STOPPED, overview, table


def drawn(*notices: str, width: int = 80) -> list[str]:
    times = [NOW_MS - hours * HOUR_MS for hours in (9, 5, 1)]
    batches = [Batch("shop", "main", ms, {}, {}, records=1_000, committed_at_ms=ms + 1) for ms in times]
    lag = lag_of(batches, times[-1] + 1, NOW_MS)
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(picture(overview(STOPPED, HELD, replace(table("shop.customers"), lag=lag)), notices))
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_problems_come_first_and_each_lag_is_drawn() -> None:
    lines = drawn()
    assert lines[0].startswith("✕ 2 tables need a person")
    names = [match[1] for line in lines if (match := re.match(r". (shop\.\w+)  ", line))]
    assert names == ["shop.payments", "shop.orders", "shop.customers"]
    (customers,) = (line for line in lines if line.startswith("✓ shop.customers"))
    assert re.split(r"\s{2,}", customers) == ["✓ shop.customers", "live", "1,204,331", "4 s", "▂▆█▆█", "4 h", "3,000"]
    assert any(re.match(r"subscription +order_changes +running, 40 s behind, MAX LAG 3 h", line) for line in lines)
    assert any(re.match(r"hold +audit +5 h behind, over its MAX LAG 3 h", line) for line in lines)
    assert any(line.startswith("✕ shop.payments: ") for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_notices_come_last() -> None:
    assert drawn("source shop: its connector does not run")[-1] == "notice: source shop: its connector does not run"


def test_a_terminal_is_refreshed_until_ctrl_c(tmp_path: Path) -> None:
    connect(str(tmp_path / "lake")).close()
    master, slave = pty.openpty()
    command = [str(Path(sys.executable).with_name("lakehold")), "status", "--watch", "--every", "0.1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=slave, stdout=slave, stderr=subprocess.PIPE)
    os.close(slave)
    shown = b""
    while shown.count(b"0 tables, all in order") < 2:
        shown += os.read(master, 4096)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, b"")
    assert os.read(master, 4096).endswith(b"\x1b[?25h"), "the cursor is hidden"
    os.close(master)


def test_metrics_of_a_lake_that_cannot_be_read_replace_those_of_before(tmp_path: Path) -> None:
    file, lake = tmp_path / "lake.prom", tmp_path / "lake"
    arguments = ["status", "--prometheus", str(file), "-w", str(lake)]
    CliRunner().invoke(app, ["sql", "SHOW TABLES", "-w", str(lake)])
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert "\nlakehold_up 1.0\n" in file.read_text()
    for side_file in lake.glob("catalog.db*"):
        side_file.write_bytes(b"no database")
    ended = CliRunner().invoke(app, arguments)
    assert (ended.exit_code, "code: lake-unreachable" in ended.stderr) == (1, True)
    assert [line for line in file.read_text().splitlines() if not line.startswith("#")] == ["lakehold_up 0.0"]


def test_without_a_terminal_watching_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["status", "--watch", "-w", str(tmp_path / "lake")])
    assert refused.exit_code == 2
    assert "lakehold status --format json" in refused.stderr


def test_the_page_shows_the_columns_of_the_picture() -> None:
    shown = page("reference/metrics.md").splitlines()
    headers = [line for line in drawn(width=120) if line.split()[:1] == ["table"]]
    assert [re.split(r"\s{2,}", line) for line in shown if line.startswith("table  ")] == [
        re.split(r"\s{2,}", line) for line in headers
    ]


def test_the_lag_of_subscribers_is_drawn_where_it_is_known() -> None:
    lag = follower_lag([InputChange(NOW_MS - HOUR_MS, 5, 700)], [Advance(NOW_MS - 2, 6)], 6, NOW_MS)
    follower, *rest = HELD.followers
    console = Console(file=StringIO(), width=120, highlight=False)
    console.print(picture(overview(replace(HELD, followers=(replace(follower, lag=lag), *rest)))))
    assert isinstance(console.file, StringIO)
    lines = [re.split(r"\s{2,}", line.strip()) for line in console.file.getvalue().splitlines()]
    assert ["subscription", "order_changes", "running, 40 s behind, MAX LAG 3 h", "█", "59 min 59 s", "700"] in lines
    assert ["hold", "audit", "5 h behind, over its MAX LAG 3 h", "-", "-"] in lines
