"""Starting, stopping and looking at a stack."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Literal

from lakehold import artifacts
from lakehold.stack import ports_in_use, processes
from lakehold.stack.addresses import StackAddresses, StackPorts
from lakehold.stack.errors import StackError
from lakehold.stack.parts.part import Part
from lakehold.stack.parts.postgres import binary_directory
from lakehold.stack.plan import StackPlan

_HEALTHY_WITHIN_S = 120.0
_HEALTH_CHECK_INTERVAL_S = 0.1
_STOP_GRACE_S = 20.0
_LOG_LINES = 12


@dataclass(frozen=True)
class PartEvent:
    """Something that happened to one part.

    Attributes:
        part: Name of the part.
        state: What it does now.
        detail: More for a person, possibly empty.
    """

    part: str
    state: Literal["fetching", "starting", "healthy", "already running", "recovering", "stopping", "stopped", "killed"]
    detail: str = ""


OnEvent = Callable[[PartEvent], None]


@dataclass(frozen=True)
class PartStatus:
    """How one part is.

    Attributes:
        name: Name of the part.
        state: Whether its process runs.
        healthy: Whether it answers its own protocol.
        port: The port of its clients.
        pid: Id of its process, if it runs.
        memory_bytes: Memory of the process and its children (proportional set size), if it runs.
        log: Its log file.
    """

    name: str
    state: Literal["running", "stopped"]
    healthy: bool
    port: int
    pid: int | None
    memory_bytes: int | None
    log: Path


def _ignore(_: PartEvent) -> None:
    pass


def up(directory: Path, ports: StackPorts | None = None, on_event: OnEvent = _ignore) -> StackAddresses:
    """Bring every part up that is not; parts that run are left alone, dead ones come back with their data.

    Args:
        directory: The stack's directory, made if need be.
        ports: Ports to listen on; by default those of the last time, or the default ones.
        on_event: Called for each thing that happens, one at a time, from other threads.

    Raises:
        EnvironmentMissing: A program is missing, or an artifact cannot be had.
        StackError: A port is taken, or a part does not become healthy.
    """
    last = StackPlan.recorded(directory)
    plan = StackPlan(directory, ports or last.ports)
    with plan.locked():
        running = {part.name for part in last.parts() if processes.recorded(part.pid_file)}
        if running and plan != last:
            raise StackError(
                "the stack runs on other ports",
                detail=f"In {directory}, {', '.join(sorted(running))} run on {last.ports}.",
                hint="Stop it first (lakehold stack down), or choose another directory for a second stack.",
            )
        missing = [part for part in plan.parts() if part.name not in running]
        ports_in_use.refuse_taken(missing)
        _fetch_programs(missing, on_event)
        plan.record()
        _bring_up(plan, on_event)
    return plan.addresses


def down(directory: Path, *, delete_data: bool = False, on_event: OnEvent = _ignore) -> None:
    """Stop every part that runs, the last one first, and kill those that do not stop in time.

    Args:
        directory: The stack's directory.
        delete_data: Delete what the stack keeps in it as well, logs included.
        on_event: Called for each thing that happens.
    """
    if not directory.exists():
        return
    plan = StackPlan.recorded(directory)
    with plan.locked():
        for part in reversed(plan.parts()):
            _stop(part, on_event)
        if delete_data:
            _delete_data(plan)


def status(directory: Path) -> tuple[PartStatus, ...]:
    """How every part of the stack is, in the order in which they are started."""
    return tuple(_part_status(part) for part in StackPlan.recorded(directory).parts())


def _fetch_programs(parts: list[Part], on_event: OnEvent) -> None:
    if not parts:
        return
    binary_directory()
    artifacts.java_executable()
    for part in parts:

        def report(line: str, name: str = part.name) -> None:
            on_event(PartEvent(name, "fetching", line))

        for artifact_set in part.artifact_sets:
            artifacts.directory(artifact_set, on_event=report)


def _bring_up(plan: StackPlan, on_event: OnEvent) -> None:
    cancelled = Event()
    one_at_a_time = Lock()

    def report(event: PartEvent) -> None:
        with one_at_a_time:
            on_event(event)

    parts = plan.parts()
    with ThreadPoolExecutor(max_workers=len(parts)) as threads:
        started: dict[str, Future[None]] = {}
        for part in parts:
            needed = [started[name] for name in part.needs]
            started[part.name] = threads.submit(_start, part, needed, cancelled, report)
        try:
            wait(started.values(), return_when=FIRST_EXCEPTION)
        finally:
            cancelled.set()
    failures = [failure for future in started.values() if (failure := future.exception())]
    for failure in failures:
        if not isinstance(failure, _Cancelled):
            raise failure


class _Cancelled(Exception):
    """Another part failed, or the person gave up; what was started stays recorded."""


def _start(part: Part, needed: list[Future[None]], cancelled: Event, on_event: OnEvent) -> None:
    for future in needed:
        future.result()
    process = processes.recorded(part.pid_file)
    if process and part.is_healthy():
        on_event(PartEvent(part.name, "already running", f"port {part.port}"))
        return
    began_s = time.monotonic()
    if process:
        on_event(PartEvent(part.name, "recovering", "it runs, but does not answer yet"))
    else:
        on_event(PartEvent(part.name, "starting", f"port {part.port}"))
        part.prepare()
        if cancelled.is_set():
            raise _Cancelled
        processes.start(part.command(), part.pid_file)
    _wait_until_healthy(part, cancelled)
    on_event(PartEvent(part.name, "healthy", f"after {time.monotonic() - began_s:.1f} s"))


def _wait_until_healthy(part: Part, cancelled: Event) -> None:
    deadline_s = time.monotonic() + _HEALTHY_WITHIN_S
    while not part.is_healthy():
        if processes.recorded(part.pid_file) is None:
            raise _failure(part, "ended before it was healthy")
        if time.monotonic() > deadline_s:
            raise _failure(part, f"is not healthy after {_HEALTHY_WITHIN_S:.0f} s")
        if cancelled.wait(_HEALTH_CHECK_INTERVAL_S):
            raise _Cancelled


def _failure(part: Part, what: str) -> StackError:
    lines = part.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return StackError(
        f"{part.name} {what}",
        code="stack-part-failed",
        detail="\n".join(["The end of its log:", *lines]),
        hint=f"Read {part.log}, then run lakehold stack up again.",
    )


def _stop(part: Part, on_event: OnEvent) -> None:
    process = processes.recorded(part.pid_file)
    if process:
        on_event(PartEvent(part.name, "stopping"))
        by_itself = processes.stop(process, part.stop_signal, _STOP_GRACE_S)
        on_event(PartEvent(part.name, "stopped" if by_itself else "killed"))
    part.pid_file.unlink(missing_ok=True)


def _delete_data(plan: StackPlan) -> None:
    # Only what the stack made: the directory may be one that holds other things too.
    for folder in (*(part.folder for part in plan.parts()), plan.directory / "logs", plan.directory / "run"):
        shutil.rmtree(folder, ignore_errors=True)
    (plan.directory / "stack.json").unlink(missing_ok=True)


def _part_status(part: Part) -> PartStatus:
    process = processes.recorded(part.pid_file)
    return PartStatus(
        name=part.name,
        state="running" if process else "stopped",
        healthy=process is not None and part.is_healthy(),
        port=part.port,
        pid=process.pid if process else None,
        memory_bytes=processes.memory_bytes(process) if process else None,
        log=part.log,
    )
