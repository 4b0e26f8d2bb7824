"""The service that `docs/operate/follow-or-schedule.md` shows: it follows all sources until it is stopped."""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from lakehold.lake import connect
from tests.many_sources import ManySources
from tests.runnable_pages import checked
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

WITHIN_S = 600


def test_the_shown_service_follows_all_sources_until_systemd_stops_it(tmp_path: Path) -> None:
    (shown,) = checked("docs/operate/follow-or-schedule.md", __file__)
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(shown)
    variable, _, _ = unit["Service"]["Environment"].partition("=")
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    warehouse = str(tmp_path / "lake")
    with connect(warehouse, schemas="", expectations="") as lake:
        many = ManySources(lake, tmp_path / "messages", 2, 10)
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name(Path(program).name)), *arguments],
            cwd=tmp_path,
            env={**os.environ, variable: warehouse},
        )
        try:
            for _ in range(2):
                sent = [many.send(source) for source in many.short]
                wait_for(partial(many.is_readable, sent), within_s=WITHIN_S)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
        assert all(reader.lease is None for reader in lake.batches.all_readers())
