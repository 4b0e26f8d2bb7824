"""The command `lakehold demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TextIO

from lakehold.demo.recorded import run_recorded
from lakehold.demo.screen import Screen

AIRFLOW_PORT = 8080
SPARK_PORT = 15_012
"""A port other than that of `lakehold spark up`, whose server may be in use."""


def run_demo(  # noqa: PLR0913 - the options of the command
    stdout: TextIO,
    *,
    live: bool,
    directory: Path | None,
    seconds: int = 60,
    airflow: bool = False,
    port: int = AIRFLOW_PORT,
) -> None:
    """Show a small shop's changes arriving in Iceberg tables.

    Args:
        stdout: The stream to write to.
        live: Take changes from a real PostgreSQL through Debezium and Kafka, instead of from the recording.
        directory: Where the lake is created; None creates a temporary directory. It stays.
        seconds: How long a live shop is open.
        airflow: Open a live shop that Airflow ingests, until Ctrl-C.
        port: Port of Airflow's UI.

    Raises:
        LakeholdError: A table stopped, or differs from PostgreSQL.
    """
    screen = Screen(stdout)
    place = directory.resolve() if directory else Path(tempfile.mkdtemp(prefix="lakehold-demo-"))
    if airflow:
        from lakehold.demo.orchestrated import run_orchestrated  # noqa: PLC0415 - as below

        run_orchestrated(screen, place, Path("dags").resolve(), airflow_port=port, spark_port=SPARK_PORT)
    elif live:
        from lakehold.demo.live import run_live  # noqa: PLC0415 - it needs a PostgreSQL client, the other does not

        run_live(screen, place, seconds)
    else:
        run_recorded(screen, place)
