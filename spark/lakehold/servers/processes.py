"""Server processes that outlive the command that started them, and are never mistaken for others.

A process is recorded by its id *and* its start time, because the system gives an id to another process sooner or later.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from lakehold.servers.server import ServerCommand

_START_TIME_TOLERANCE_S = 2.0
"""Tolerance for start times: they rest on the kernel's boot time, which moves when the clock is corrected."""

_POLL_INTERVAL_S = 0.02
_STANDARD_ERROR = 2


@dataclass(frozen=True)
class ProcessRecord:
    """A record of one process: its id and the epoch second of its start."""

    pid: int
    started_at_s: float

    def process(self) -> psutil.Process | None:
        """Return the recorded process if it still runs, else None."""
        try:
            process = psutil.Process(self.pid)
            is_the_same = abs(process.create_time() - self.started_at_s) <= _START_TIME_TOLERANCE_S
        except psutil.NoSuchProcess:
            return None
        return process if is_the_same and not has_ended(process) else None


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended with all of its threads, collected by its parent or not."""
    try:
        # A process whose first thread has ended looks ended itself, while the others may still hold its ports.
        if process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1):
            return False
    except psutil.NoSuchProcess:
        return True
    # Collect our own child: until then its id looks alive, to PostgreSQL's lock file as well.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return True


def start(command: ServerCommand, pid_file: Path) -> None:
    """Start a server in a session of its own and record it in `pid_file`."""
    # Not subprocess: its objects expect to see the end of the processes that they started.
    program = "/usr/bin/env"
    pid = os.posix_spawn(
        program,
        [program, f"--chdir={command.folder}", *command.argv],
        {**(os.environ if command.inherits else {}), **command.environment},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(command.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inherited()),
        ],
        setsid=True,
    )
    record = ProcessRecord(pid, psutil.Process(pid).create_time())
    partial = pid_file.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(record)))
    partial.replace(pid_file)


def _inherited() -> list[int]:
    """Return inherited descriptors that a child would inherit too: a lock or a pipe of the shell must not outlive the command."""
    found = []
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing is closed by now
            if int(name) > _STANDARD_ERROR and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def recorded(pid_file: Path) -> psutil.Process | None:
    """Return the process that `pid_file` records, if it still runs."""
    try:
        record = ProcessRecord(**json.loads(pid_file.read_text()))
    except FileNotFoundError:
        return None
    return record.process()


def stop(process: psutil.Process, stop_signal: signal.Signals, grace_s: float) -> bool:
    """Stop a process by a signal, and kill it and its children if it does not stop within `grace_s`.

    Returns:
        Whether it stopped by itself.
    """
    family = [process, *_children(process)]
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(stop_signal)
    survivors = _wait(family, grace_s)
    for survivor in survivors:
        with contextlib.suppress(psutil.NoSuchProcess):
            survivor.kill()
    _wait(survivors, grace_s)
    return process not in survivors


def memory_bytes(process: psutil.Process) -> int:
    """Measure the memory of a process and its children; pages that they share count once (proportional set size)."""
    total = 0
    for member in (process, *_children(process)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += member.memory_full_info().pss
    return total


def _wait(family: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait until processes have ended, and return those that have not within the time."""
    # Not psutil.wait_procs: it counts dead processes as alive until their parent collects them, which may take seconds.
    deadline_s = time.monotonic() + timeout_s
    while (alive := [member for member in family if not has_ended(member)]) and time.monotonic() < deadline_s:
        time.sleep(_POLL_INTERVAL_S)
    return alive


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
