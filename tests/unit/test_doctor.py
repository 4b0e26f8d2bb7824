"""`lakehold doctor` names what is missing or does not answer, with a way to get it, and examines the rest all the same."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.lake import connect
from lakehold.stack import StackPlan, StackPorts
from lakehold.upstream.wanted.account import mysql_lacks, postgres_lacks
from tests.spark_connect import free_port


def findings(lake: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code and the rows by what they are about."""
    result = CliRunner().invoke(app, ["doctor", "--warehouse", str(lake), "--format", "json", "--quiet"])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, {row["checked"]: row for row in rows}


def test_all_is_well_on_a_machine_that_runs_these_tests(tmp_path: Path) -> None:
    code, found = findings(tmp_path / "lake")
    assert {name: row["state"] for name, row in found.items()} == dict.fromkeys(
        ("Python", "Java", "jars: spark", "ports", "lake"), "ok"
    )
    assert code == 0
    assert not (tmp_path / "lake").exists(), "nothing was changed"


def test_a_java_that_is_missing_or_old_or_does_not_start_is_named_and_the_rest_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, found = findings(tmp_path / "lake")
    assert (code, found["Java"]["state"], found["lake"]["state"]) == (1, "failed", "ok")
    assert str(tmp_path) in found["Java"]["found"]
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    code, found = findings(tmp_path / "lake")
    assert (code, found["Java"]["state"]) == (1, "failed")
    assert "11.0.2" in found["Java"]["found"]
    assert "17" in found["Java"]["hint"]
    old.write_bytes(b"\x7fELF of another processor")
    code, found = findings(tmp_path / "lake")
    assert (code, found["Java"]["state"], found["lake"]["state"]) == (1, "failed", "ok")
    assert f"{old} does not start: Exec format error" in found["Java"]["found"]


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_SPARK_REMOTE", f"sc://127.0.0.1:{free_port()}")
    code, found = findings(tmp_path / "lake")
    assert (code, found["Spark Connect"]["state"]) == (1, "failed")
    assert "lakehold spark up" in found["Spark Connect"]["hint"]
    assert "Java" not in found, "the server has its own"


@pytest.mark.parametrize("end", ["/;token=S3CRET", ";token=S3CRET"])
@pytest.mark.parametrize("user", ["", "me:S3CRET@"])
def test_no_secret_in_the_address_of_a_spark_server_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, end: str
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        monkeypatch.setenv("LAKEHOLD_SPARK_REMOTE", f"sc://{user}127.0.0.1:{port}{end}")
        _, answering = findings(tmp_path / "lake")
    _, silent = findings(tmp_path / "lake")
    for found in (answering, silent):
        assert f"sc://127.0.0.1:{port}" in found["Spark Connect"]["found"]
        assert "S3CRET" not in str(found)


def test_an_empty_address_of_a_spark_server_means_spark_in_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SPARK_REMOTE", "")
    code, found = findings(tmp_path / "lake")
    assert (code, found["Java"]["state"]) == (0, "ok")
    assert "Spark Connect" not in found


def test_each_connection_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("LAKEHOLD_UPSTREAM_TIMEOUT_MS", "1000")
    with connect(str(tmp_path / "lake")) as lake:
        lake.sql(
            f"CREATE CONNECTION k TO KAFKA (BROKER '127.0.0.1:{port}');"
            f"CREATE CONNECTION r TO SCHEMA REGISTRY (URL 'http://127.0.0.1:{port}');"
            f"CREATE CONNECTION c TO CONNECT (URL 'http://127.0.0.1:{port}');"
            f"CREATE CONNECTION p TO POSTGRES (HOST '127.0.0.1', PORT {port}, USER 'u', DATABASE 'd');"
            f"CREATE CONNECTION m TO MYSQL (HOST '127.0.0.1', PORT {port}, USER 'u');"
            f"CREATE CONNECTION s TO POSTGRES (HOST '127.0.0.1', USER 'u', PASSWORD SECRET 'NOWHERE', DATABASE 'd')"
        )
    code, found = findings(tmp_path / "lake")
    assert code == 1
    for name in "krcpms":
        row = found[f"connection {name}"]
        assert row["state"] == "failed"
        assert row["hint"]
    assert "NOWHERE" in found["connection s"]["found"] + found["connection s"]["hint"]


def test_a_port_that_the_stack_needs_and_another_program_has_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_STACK_DIR", str(tmp_path / "stack"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        StackPlan(tmp_path / "stack", StackPorts(kafka=port)).record()
        code, found = findings(tmp_path / "lake")
    assert re.search(rf"Port {port} for kafka: .* \(process {os.getpid()}\) listens on it\.", found["ports"]["found"])
    assert "lakehold stack up --port-base" in found["ports"]["hint"]
    assert (code, found["ports"]["state"]) == (0, "ok"), "only the demo needs the stack"


class Elsewhere(BaseHTTPRequestHandler):
    """A registry whose clock is an hour behind."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b"[]")

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((timestamp or time.time()) - 3_600)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_a_clock_that_differs_is_named(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        with connect(str(tmp_path / "lake")) as lake:
            lake.sql(f"CREATE CONNECTION r TO SCHEMA REGISTRY (URL 'http://127.0.0.1:{server.server_port}')")
        code, found = findings(tmp_path / "lake")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert (code, found["connection r"]["state"], found["clock of r"]["state"]) == (1, "ok", "failed")
    assert re.match(r"it is 3,[56]\d\d s behind this machine's", found["clock of r"]["found"])
    assert "NTP" in found["clock of r"]["hint"]


def test_each_source_is_asked_for_its_topics(tmp_path: Path) -> None:
    messages = tmp_path / "messages"
    messages.mkdir()
    with connect(str(tmp_path / "lake")) as lake:
        lake.sql(f"CREATE SOURCE s FROM FILES '{messages}' FORMAT JSON")
        lake.sql("CREATE TABLE s.t FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT")
    messages.rename(tmp_path / "elsewhere")
    _, found = findings(tmp_path / "lake")
    assert (found["topics of s"]["state"], bool(found["topics of s"]["hint"])) == ("failed", True)


@pytest.mark.parametrize(
    ("grants", "lacks"),
    [
        (["GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION"], []),
        (["GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `u`@`%`"], []),
        (["GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`", "GRANT SELECT ON `shop`.* TO `u`@`%`"], []),
        (
            ["GRANT USAGE ON *.* TO `u`@`%`", "GRANT SELECT ON `shop`.* TO `u`@`%`"],
            ["GRANT REPLICATION SLAVE ON *.* TO u.", "GRANT REPLICATION CLIENT ON *.* TO u."],
        ),
    ],
)
def test_rights_that_a_capture_of_mysql_lacks_are_named(grants: list[str], lacks: list[str]) -> None:
    assert [lack.hint for lack in mysql_lacks("u", grants)] == lacks


def test_rights_that_a_capture_of_postgres_lacks_are_named() -> None:
    nothing = postgres_lacks("u", wal_level="logical", replicates=True, may_create=True, unreadable=())
    lacks = postgres_lacks("u", wal_level="replica", replicates=False, may_create=False, unreadable=("public.t",))
    assert nothing == ()
    assert [lack.hint.split(";")[0] for lack in lacks] == [
        "Set wal_level to logical and restart PostgreSQL.",
        "ALTER ROLE u REPLICATION",
        "GRANT CREATE ON DATABASE … TO u",
        "GRANT SELECT ON public.t TO u",
    ]
