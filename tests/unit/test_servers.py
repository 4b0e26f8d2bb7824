"""Servers outlive their starter. They start together, wait only for those they need, and all stop waiting if one fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import ClassVar

import psutil
import pytest

from lakehold.servers import Server, ServerCommand, ServerError, ServerEvent, lifecycle, processes
from tests.spark_connect import free_port
from tests.waiting import wait_for

RUN = "print('ready', flush=True); time.sleep(600)"


class Small(Server):
    """A server that is healthy as soon as its program has printed `ready`, in a folder shared by all servers."""

    program: ClassVar[str]
    up_command = "small up"
    port = 0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.folder = directory

    def prepare(self) -> None:
        for folder in (self.log.parent, self.pid_file.parent):
            folder.mkdir(exist_ok=True)

    def command(self) -> ServerCommand:
        return ServerCommand([sys.executable, "-c", self.program], self.folder, self.log, {})

    def is_healthy(self) -> bool:
        return self.log.exists() and "ready" in self.log.read_text()


class Database(Small):
    """A server that is ready when the cache has begun, although no server declares that order."""

    name = "database"
    program = f"import pathlib, time\nwhile not pathlib.Path('started').exists(): time.sleep(0.01)\n{RUN}"


class Cache(Small):
    name = "cache"
    program = f"import pathlib, time; pathlib.Path('started').touch(); {RUN}"


class Application(Cache):
    name = "application"
    needs = ("database",)


class Broken(Small):
    name = "broken"
    program = "import sys; sys.exit('no disk')"


class Waiting(Small):
    name = "waiting"
    program = "import time; time.sleep(600)"


class Interrupting(Waiting):
    """A server that is healthy after 60 health checks. At the third one Ctrl-C reaches the thread that checks it."""

    name = "interrupting"
    checks = 0

    def is_healthy(self) -> bool:
        self.checks += 1
        if self.checks == 3:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return self.checks > 60


class AfterInterrupting(Cache):
    name = "after-interrupting"
    needs = ("interrupting",)


class AfterWaiting(Cache):
    name = "after-waiting"
    needs = ("waiting",)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[None]:
    yield
    for kind in (Database, Cache, Application, Broken, Waiting, AfterWaiting, Interrupting, AfterInterrupting):
        lifecycle.stop(kind(tmp_path), lambda _: None)


@pytest.mark.usefixtures("stopped")
def test_each_server_starts_as_soon_as_those_it_needs_are_healthy(tmp_path: Path) -> None:
    events: list[ServerEvent] = []
    servers = [kind(tmp_path) for kind in (Database, Application, Cache)]
    lifecycle.start_together(servers, Event(), events.append)
    assert all(lifecycle.status(server).healthy for server in servers)
    happened = [(event.server, event.state) for event in events]
    assert happened.index(("database", "healthy")) < happened.index(("application", "starting"))


@pytest.mark.usefixtures("stopped")
def test_a_server_that_fails_is_named_and_the_others_are_not_waited_for(tmp_path: Path) -> None:
    servers = [kind(tmp_path) for kind in (Waiting, AfterWaiting, Broken)]
    with pytest.raises(ServerError, match="broken ended before it was healthy") as failure:
        lifecycle.start_together(servers, Event(), lambda _: None)
    assert "no disk" in failure.value.detail
    assert lifecycle.status(servers[1]).state == "stopped"


@pytest.mark.usefixtures("stopped")
def test_cancelling_ends_the_waiting(tmp_path: Path) -> None:
    given_up = Event()
    with pytest.raises(lifecycle.Cancelled):
        lifecycle.start_together([Waiting(tmp_path), AfterWaiting(tmp_path)], given_up, lambda _: given_up.set())


@pytest.mark.usefixtures("stopped")
def test_an_interrupt_while_the_first_server_starts_starts_no_further_one(tmp_path: Path) -> None:
    class Interrupted(tuple[Small, ...]):
        def __iter__(self) -> Iterator[Small]:
            yield from tuple(self[:-1])
            raise KeyboardInterrupt

    servers = Interrupted([Waiting(tmp_path), AfterWaiting(tmp_path), Cache(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        lifecycle.start_together(servers, Event(), lambda _: None)
    assert lifecycle.status(servers[1]).state == "stopped"


@pytest.mark.usefixtures("stopped")
def test_an_interrupt_that_another_thread_takes_ends_the_waiting(tmp_path: Path) -> None:
    servers = [Interrupting(tmp_path), AfterInterrupting(tmp_path)]
    # Ignored where a shell started the tests in the background, which a process passes on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        lifecycle.start_together(servers, Event(), lambda _: None)
    assert lifecycle.status(servers[1]).state == "stopped"


@pytest.mark.usefixtures("stopped")
def test_a_server_keeps_no_inherited_file_open(tmp_path: Path) -> None:
    """Check that no lock or pipe of the shell stays open in the server."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        lifecycle.start(Cache(tmp_path), Event(), lambda _: None)
    finally:
        os.close(writing)
    with open(reading, "rb", buffering=0) as pipe:
        os.set_blocking(reading, False)
        assert pipe.read() == b"", "no process has the other end open"


_FIRST_THREAD_ENDS = """
import ctypes, platform, sys, threading, time
exit_of_a_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
ctypes.CDLL(None).syscall(exit_of_a_thread, 0)
"""


def test_a_process_has_not_ended_before_its_last_thread() -> None:
    """Imitate a killed Java process, which looks ended for a moment while its threads still hold its ports."""
    started = subprocess.Popen([sys.executable, "-c", _FIRST_THREAD_ENDS])
    process = psutil.Process(started.pid)
    try:
        wait_for(lambda: process.status() == psutil.STATUS_ZOMBIE, "the first thread ends")
        assert not processes.has_ended(process)
    finally:
        process.kill()
    wait_for(lambda: processes.has_ended(process), "the process ends")
    started.wait()


def test_ports_of_tests_are_given_once_and_are_none_that_clients_get() -> None:
    first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == len(ports)
    assert max(ports) < first_of_clients
