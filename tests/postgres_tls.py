"""TLS on a running PostgreSQL of a test."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psycopg

from tests.certificates import Issued
from tests.waiting import wait_for


def serve_tls(uri: str, issued: Issued | None) -> None:
    """Make a server offer TLS with a certificate; None: make it offer none."""
    with psycopg.connect(uri, autocommit=True) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        if issued:
            # Names that PostgreSQL looks for.
            for file, name in ((issued.certificate, "server.crt"), (issued.key, "server.key")):
                copy = Path(shutil.copy2(file, Path(data) / name))
                os.chown(copy, Path(data).stat().st_uid, Path(data).stat().st_gid)
        (before,) = connection.execute("SELECT pg_conf_load_time()").fetchone() or (None,)
        connection.execute(f"ALTER SYSTEM SET ssl = {'on' if issued else 'off'}".encode())
        connection.execute("SELECT pg_reload_conf()")
        wait_for(lambda: connection.execute("SELECT pg_conf_load_time()").fetchone() != (before,))
