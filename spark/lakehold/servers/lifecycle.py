"""Start servers until they answer, stop one, and inspect it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from threading import Event, Lock

from lakehold import artifacts
from lakehold.servers import processes
from lakehold.servers.errors import ServerError
from lakehold.servers.server import OnEvent, Server, ServerEvent, ServerStatus

_HEALTHY_WITHIN_S = 240.0
_HEALTH_CHECK_INTERVAL_S = 0.1
_INTERRUPTED_WITHIN_S = 0.5
_STOP_GRACE_S = 20.0
_LOG_LINES = 12


class Cancelled(Exception):
    """The signal that a start was given up: another server failed, or the person did; started servers stay recorded."""


def fetch_programs(servers: Iterable[Server], on_event: OnEvent) -> None:
    """Fetch all programs that the servers need and that are not on this machine yet.

    Raises:
        EnvironmentMissing: Java is missing, or an artifact cannot be fetched.
    """
    artifacts.java_executable()
    for server in servers:

        def report(line: str, name: str = server.name) -> None:
            on_event(ServerEvent(name, "fetching", line))

        for artifact_set in server.artifact_sets:
            artifacts.directory(artifact_set, on_event=report)


def start(server: Server, cancelled: Event, on_event: OnEvent) -> None:
    """Start a server unless it runs, and wait until it is healthy.

    Raises:
        ServerError: The server does not become healthy; what was started stays recorded.
        Cancelled: `cancelled` was set meanwhile.
    """
    process = processes.recorded(server.pid_file)
    if process and server.is_healthy():
        on_event(ServerEvent(server.name, "already running", f"port {server.port}"))
        return
    began_s = time.monotonic()
    if process:
        on_event(ServerEvent(server.name, "recovering", "it runs, but does not answer yet"))
    else:
        on_event(ServerEvent(server.name, "starting", f"port {server.port}"))
        server.prepare()
        if cancelled.is_set():
            raise Cancelled
        processes.start(server.command(), server.pid_file)
    _wait_until_healthy(server, cancelled)
    on_event(ServerEvent(server.name, "healthy", f"after {time.monotonic() - began_s:.1f} s"))


def start_together(servers: Sequence[Server], cancelled: Event, on_event: OnEvent) -> None:
    """Start servers side by side, each as soon as those that it needs are healthy.

    Args:
        servers: The servers, each after those that it needs.
        cancelled: Ends the waiting; set in the end.
        on_event: Called for each thing that happens, one at a time, from other threads.

    Raises:
        ServerError: A server does not become healthy; what was started stays recorded.
        Cancelled: `cancelled` was set meanwhile.
    """
    one_at_a_time = Lock()

    def report(event: ServerEvent) -> None:
        with one_at_a_time:
            on_event(event)

    def start_after(needed: Iterable[Future[None]], server: Server) -> None:
        for future in needed:
            future.result()
        start(server, cancelled, report)

    with ThreadPoolExecutor(max_workers=len(servers)) as threads:
        started: dict[str, Future[None]] = {}
        # Ctrl-C may come while the first server starts and the others are still handed out: the end of the block waits for all.
        try:
            for server in servers:
                started[server.name] = threads.submit(start_after, [started[name] for name in server.needs], server)
            _wait_for_all(started.values())
        finally:
            cancelled.set()
    failures = [failure for future in started.values() if (failure := future.exception())]
    if failures:
        raise next((failure for failure in failures if not isinstance(failure, Cancelled)), failures[0])


def _wait_for_all(started: Collection[Future[None]]) -> None:
    """Wait until all have ended or one has failed. A signal that reaches another thread does not end a wait without a timeout."""
    done: set[Future[None]] = set()
    while len(done) < len(started) and not any(future.exception() for future in done):
        done, _ = wait(started, _INTERRUPTED_WITHIN_S, FIRST_EXCEPTION)


def stop(server: Server, on_event: OnEvent) -> None:
    """Stop a server if it runs; kill it if it does not stop in time."""
    process = processes.recorded(server.pid_file)
    if process:
        on_event(ServerEvent(server.name, "stopping"))
        by_itself = processes.stop(process, server.stop_signal, _STOP_GRACE_S)
        on_event(ServerEvent(server.name, "stopped" if by_itself else "killed"))
    server.pid_file.unlink(missing_ok=True)


def status(server: Server) -> ServerStatus:
    """Return the current status of a server."""
    process = processes.recorded(server.pid_file)
    return ServerStatus(
        name=server.name,
        state="running" if process else "stopped",
        healthy=process is not None and server.is_healthy(),
        port=server.port,
        pid=process.pid if process else None,
        memory_bytes=processes.memory_bytes(process) if process else None,
        log=server.log,
    )


def _wait_until_healthy(server: Server, cancelled: Event) -> None:
    deadline_s = time.monotonic() + _HEALTHY_WITHIN_S
    while not server.is_healthy():
        if processes.recorded(server.pid_file) is None:
            raise _failure(server, "ended before it was healthy")
        if time.monotonic() > deadline_s:
            raise _failure(server, f"is not healthy after {_HEALTHY_WITHIN_S:.0f} s")
        if cancelled.wait(_HEALTH_CHECK_INTERVAL_S):
            raise Cancelled


def _failure(server: Server, what: str) -> ServerError:
    lines = server.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return ServerError(
        f"{server.name} {what}",
        code="server-failed",
        detail="\n".join(["The end of its log:", *lines]),
        hint=f"Read {server.log}, then run {server.up_command} again.",
    )
