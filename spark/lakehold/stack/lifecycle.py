"""Start, stop and inspect a stack."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Event

from lakehold.servers import ServerEvent, ServerStatus, lifecycle, processes
from lakehold.servers.ports import refuse_ports_in_use
from lakehold.servers.server import OnEvent
from lakehold.stack.addresses import StackAddresses, StackPorts
from lakehold.stack.composition import StackPlan
from lakehold.stack.errors import StackError
from lakehold.stack.parts.part import Part
from lakehold.stack.parts.postgres import binary_directory


def _ignore(_: ServerEvent) -> None:
    pass


def up(
    directory: Path, ports: StackPorts | None = None, on_event: OnEvent = _ignore, *, for_users: bool = False
) -> StackAddresses:
    """Start every part that does not run. Running parts are left alone; dead ones come back with their data.

    Args:
        directory: The stack's directory, created if need be.
        ports: Ports to listen on; by default those of the last time, or the default ones.
        on_event: Called for each thing that happens, one at a time, from other threads.
        for_users: Let the stack, if no part of it runs, end with its last user (`shared.py`), instead of running until `down`.

    Raises:
        EnvironmentMissing: A program is missing, or an artifact cannot be fetched.
        StackError: The stack runs on other ports.
        ServerError: A port is taken, or a part does not become healthy.
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
        refuse_ports_in_use(missing)
        _fetch_programs(missing, on_event)
        plan.record()
        if not for_users:
            plan.only_for_users.unlink(missing_ok=True)
        elif not running:
            plan.only_for_users.touch()
        lifecycle.start_together(plan.parts(), Event(), on_event)
    return plan.addresses


def down(directory: Path, *, delete_data: bool = False, on_event: OnEvent = _ignore) -> None:
    """Stop every running part, the last one first, and kill those that do not stop in time.

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
            lifecycle.stop(part, on_event)
        plan.only_for_users.unlink(missing_ok=True)
        if delete_data:
            _delete_data(plan)


def status(directory: Path) -> tuple[ServerStatus, ...]:
    """Return the status of every part of the stack, in the order in which they are started."""
    return tuple(lifecycle.status(part) for part in StackPlan.recorded(directory).parts())


def _fetch_programs(parts: list[Part], on_event: OnEvent) -> None:
    if parts:
        binary_directory()
        lifecycle.fetch_programs(parts, on_event)


def _delete_data(plan: StackPlan) -> None:
    # Only what the stack made: the directory may be one that holds other things too.
    for folder in (*(part.folder for part in plan.parts()), plan.directory / "logs", plan.directory / "run"):
        shutil.rmtree(folder, ignore_errors=True)
    (plan.directory / "stack.json").unlink(missing_ok=True)
