"""Promises of the stack that need no server: the processes it stops, its ports, and the configuration of connectors."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from lakehold import stack
from lakehold.cli.stack import app
from lakehold.errors import EnvironmentMissing
from lakehold.servers import HOST, ServerCommand, processes
from lakehold.stack.addresses import StackAddresses, StackPorts
from lakehold.stack.composition import StackPlan
from lakehold.stack.parts import postgres

SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEPER


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that is not the stack's."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.fixture
def listener() -> Iterator[int]:
    """Listen on a port of loopback."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def _start(directory: Path, program: str) -> psutil.Process:
    log = directory / "log"
    processes.start(ServerCommand([sys.executable, "-c", program], directory, log, {}), directory / "pid.json")
    process = processes.recorded(directory / "pid.json")
    assert process is not None
    deadline = time.monotonic() + 30
    while not log.read_text():  # its signal handlers are in place once it has printed something
        assert time.monotonic() < deadline
    return process


@pytest.mark.parametrize(("program", "by_itself"), [(SLEEPER, True), (STUBBORN, False)])
def test_a_server_is_found_by_its_record_and_killed_if_need_be(tmp_path: Path, program: str, by_itself: bool) -> None:
    process = _start(tmp_path, program)

    assert processes.stop(process, signal.SIGTERM, grace_s=0.5 if not by_itself else 10) is by_itself
    assert processes.recorded(tmp_path / "pid.json") is None
    assert (tmp_path / "log").read_text() == "ready\n"


def test_a_dead_server_does_not_count_as_running(tmp_path: Path) -> None:
    process = _start(tmp_path, SLEEPER)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    assert processes.recorded(tmp_path / "pid.json") is None


def test_down_leaves_a_process_alone_that_only_has_a_recorded_id(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    plan = StackPlan(tmp_path, StackPorts.from_base(23_000))
    plan.record()
    started_before_s = psutil.Process(bystander.pid).create_time() - 3600
    kafka = next(part for part in plan.parts() if part.name == "kafka")
    kafka.pid_file.write_text(json.dumps({"pid": bystander.pid, "started_at_s": started_before_s}))

    assert {part.state for part in stack.status(tmp_path)} == {"stopped"}
    stack.down(tmp_path)

    assert bystander.poll() is None


def test_a_taken_port_is_reported_with_its_owner_before_anything_starts(tmp_path: Path, listener: int) -> None:
    ports = dataclasses.replace(StackPorts.from_base(23_000), registry=listener)

    with pytest.raises(stack.ServerError) as refusal:
        stack.up(tmp_path, ports)

    assert refusal.value.code == "port-taken"
    assert f"port {listener} for registry is taken" in refusal.value.message
    assert f"(process {os.getpid()})" in refusal.value.detail
    assert "--port-base" in refusal.value.hint
    assert {part.state for part in stack.status(tmp_path)} == {"stopped"}


def test_down_of_a_stack_that_never_ran_does_nothing(tmp_path: Path) -> None:
    stack.down(tmp_path / "never", delete_data=True)

    assert list(tmp_path.iterdir()) == []


def test_deleting_data_spares_files_that_the_stack_did_not_create(tmp_path: Path) -> None:
    StackPlan(tmp_path, StackPorts()).record()
    (tmp_path / "thesis.txt").write_text("years of work")

    stack.down(tmp_path, delete_data=True)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "thesis.txt"]


def test_the_ports_of_the_last_start_are_remembered(tmp_path: Path) -> None:
    assert StackPlan.recorded(tmp_path).ports == StackPorts()
    moved = StackPlan(tmp_path, StackPorts.from_base(23_000))
    moved.record()

    assert StackPlan.recorded(tmp_path) == moved


def test_every_part_comes_after_those_it_needs(tmp_path: Path) -> None:
    seen: set[str] = set()
    for part in StackPlan(tmp_path, StackPorts()).parts():
        assert set(part.needs) <= seen, part.name
        seen.add(part.name)


def test_missing_postgresql_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_PG_BIN", str(tmp_path))

    with pytest.raises(EnvironmentMissing) as refusal:
        postgres.binary_directory()

    assert str(tmp_path) in refusal.value.detail
    assert "apt-get install postgresql" in refusal.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root switches to another user")
def test_a_directory_that_postgresql_cannot_enter_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    part = postgres.Postgres(closed / "stack", StackPorts())
    part.folder.parent.mkdir()

    with pytest.raises(stack.StackError) as refusal:
        part.prepare()

    assert refusal.value.code == "stack-directory"
    assert "LAKEHOLD_STACK_DIR" in refusal.value.hint


@pytest.mark.parametrize("value_format", ["avro", "json"])
def test_a_connector_asks_for_all_that_exact_merging_needs(value_format: stack.ValueFormat) -> None:
    config = stack.debezium_postgres(
        StackAddresses.of(StackPorts()),
        topic_prefix="shop",
        database="shop",
        tables=["public.customers", "public.orders"],
        publication="captured",
        slot="shop",
        value_format=value_format,
        partitions=4,
    )

    assert config["table.include.list"] == r"public\.customers,public\.orders"
    assert config["publication.autocreate.mode"] == "disabled"
    assert config["provide.transaction.metadata"] == "true"
    assert config["topic.creation.default.partitions"] == "4"
    assert config["topic.creation.transaction.partitions"] == "1"
    if value_format == "avro":
        assert config["value.converter.apicurio.registry.as-confluent"] == "true"
        assert config["key.converter.apicurio.registry.headers.enabled"] == "false"
    else:
        assert config["value.converter.replace.null.with.default"] == "false"


def test_a_publication_covers_the_tables_with_full_before_images() -> None:
    assert stack.publication_sql("captured", ["public.a", "public.b"]) == [
        "ALTER TABLE public.a REPLICA IDENTITY FULL",
        "ALTER TABLE public.b REPLICA IDENTITY FULL",
        "CREATE PUBLICATION captured FOR TABLE public.a, public.b",
    ]


def test_status_of_a_stopped_stack_is_readable_by_programs_and_exits_with_1(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", "--directory", str(tmp_path), "--format", "json"])

    assert result.exit_code == 1
    parts = json.loads(result.stdout)
    assert [part["name"] for part in parts] == ["postgres", "kafka", "registry", "connect"]
    assert {(part["state"], part["pid"], part["healthy"]) for part in parts} == {("stopped", None, False)}
