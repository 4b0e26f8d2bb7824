"""`lakehold demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TextIO

from lakehold.demo.recorded import run_recorded
from lakehold.demo.screen import Screen


def run_demo(stdout: TextIO, *, live: bool, directory: Path | None, seconds: int = 60) -> None:
    """Show a small shop's changes arriving in Iceberg tables.

    Args:
        stdout: Where it is shown.
        live: From a real PostgreSQL through Debezium and Kafka, instead of from the recording.
        directory: Where the lake is made; None makes a temporary directory. It stays.
        seconds: How long a live shop is open.

    Raises:
        LakeholdError: A table stopped, or is not as PostgreSQL has it.
    """
    screen = Screen(stdout)
    place = directory.resolve() if directory else Path(tempfile.mkdtemp(prefix="lakehold-demo-"))
    if live:
        from lakehold.demo.live import run_live  # noqa: PLC0415 - it needs a PostgreSQL client, the other does not

        run_live(screen, place, seconds)
    else:
        run_recorded(screen, place)
