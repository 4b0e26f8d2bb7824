"""`lakehold demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TextIO

from lakehold.demo.recorded import run_recorded
from lakehold.demo.screen import Screen

AIRFLOW_PORT = 8080
SPARK_PORT = 15_012
"""Not that of `lakehold spark up`, whose server is somebody's."""


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
        stdout: Where it is shown.
        live: From a real PostgreSQL through Debezium and Kafka, instead of from the recording.
        directory: Where the lake is made; None makes a temporary directory. It stays.
        seconds: How long a live shop is open.
        airflow: A live shop that Airflow looks after, until Ctrl-C.
        port: Of Airflow's UI.

    Raises:
        LakeholdError: A table stopped, or is not as PostgreSQL has it.
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
