"""The address at which Airflow's UI opens the status page, asked of Airflow's own web application."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.airflow_process import environment

ANSWERED = """
import json, sys

from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient

from lakehold.orchestration.plugin import LakeholdPlugin

client = TestClient(create_app())
(view,) = LakeholdPlugin.external_views
print(json.dumps([view["href"], *(client.get(path).status_code for path in (view["href"], "/lakehold/"))]), file=sys.stderr)
"""


def test_the_page_opens_where_a_proxy_serves_airflow_below_a_path(tmp_path: Path) -> None:
    behind_proxy = {"AIRFLOW__API__BASE_URL": "https://data.example/team/airflow/"}
    done = subprocess.run(
        [sys.executable, "-c", ANSWERED],
        env=environment(tmp_path) | behind_proxy,
        capture_output=True,
        text=True,
        check=True,
    )
    page, below_path, at_root = json.loads(done.stderr.splitlines()[-1])
    asks_for_login, is_missing = 401, 404
    assert (page, below_path, at_root) == ("/team/airflow/lakehold/", asks_for_login, is_missing)
