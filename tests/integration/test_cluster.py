"""`make demo-cluster`: a worker and the Connect server of a real cluster are killed in mid-merge, and the lake stays equal."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lakehold import stack as lakehold_stack
from tests.make_targets import commands
from tests.runnable_pages import checked

pytestmark = [pytest.mark.stack, pytest.mark.soak]

ENDS_WITHIN_S = 1_000


def test_the_page_shows_the_command_that_this_test_runs() -> None:
    assert checked("docs/scaling.md", __file__) == ["make demo-cluster\n"]


@pytest.mark.usefixtures("stack")
def test_the_lake_is_equal_after_a_worker_and_the_connect_server_were_killed_in_mid_merge(
    stack_directory: Path,
) -> None:
    running = subprocess.Popen(
        commands("demo-cluster")[-1],
        env={**os.environ, "LAKEHOLD_STACK_DIR": str(stack_directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        shown, _ = running.communicate(timeout=ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        # Killed, it would leave its servers behind.
        running.terminate()
        shown, _ = running.communicate()
    assert running.returncode == 0, shown
    assert re.search(r"kill -9: worker[12], and its executor \d+", shown), shown
    lost = re.search(r"tasks that were lost and ran again: (\d+)", shown)
    assert lost is not None, shown
    assert int(lost[1]) > 0
    assert "kill -9: the Spark Connect server" in shown
    for table in ("customers", "orders", "order_items", "prices"):
        assert re.search(rf"shop\.{table} equals public\.{table}", shown), shown
    assert {part.state for part in lakehold_stack.status(stack_directory)} == {"running"}
