"""The demo's Airflow, started in a shell that is set up for another one."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from lakehold.demo.airflow_servers import Installation, servers
from lakehold.servers import lifecycle
from tests.spark_connect import free_port

DAG = "from airflow.sdk import dag\n\n@dag('{name}', schedule=None)\ndef made(): ...\n\nmade()\n"


def test_the_demo_leaves_the_airflow_of_the_shell_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, dags = tmp_path / "other", tmp_path / "dags"
    for folder in (other, dags):
        folder.mkdir()
    for name in ("lakehold_ingest", "invoices"):
        (dags / f"{name}.py").write_text(DAG.format(name=name))
    monkeypatch.setenv("AIRFLOW_CONFIG", str(other / "airflow.cfg"))
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{other}/airflow.db")
    monkeypatch.setenv("AIRFLOW_CONN_BILLING", "postgres://billing")
    airflow = Installation(tmp_path / "home", free_port(), dags, "sc://127.0.0.1:15002", {})
    api, processor, *_ = servers(tmp_path / "servers", airflow)
    events: list[object] = []
    airflow.migrate()
    try:
        lifecycle.start_together((api, processor), Event(), events.append)
        airflow.run_dags()
        with airflow.client() as client:
            found = client.get("/dags").raise_for_status().json()["dags"]
        assert {dag["dag_id"]: dag["is_paused"] for dag in found} == {"lakehold_ingest": False, "invoices": True}
    finally:
        for server in (processor, api):
            lifecycle.stop(server, events.append)
    assert not [*other.iterdir()], "the other Airflow's database and configuration are not touched"
    assert not any("BILLING" in name for name in api.command().environment)
