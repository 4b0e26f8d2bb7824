"""The endpoint of a Spark Connect server: whether a server answers, and what became of it if not, without loading Spark."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from lakehold import spark_log
from lakehold.errors import LakeholdError, UpstreamUnavailable
from lakehold.servers import processes
from lakehold.servers.server_directory import default_directory, log_file, pid_file, read_record

_CONNECT_PORT = 15_002
"""The port of an address without one, as Spark defines it."""

_NAME = "spark"
"""The name of the server of `lakehold spark`."""

_THIS_MACHINE = ("127.0.0.1", "localhost")

_SESSION_LOST = re.compile(
    r"\[(NO_ACTIVE_SESSION|INVALID_HANDLE\.SESSION_(CHANGED|CLOSED|NOT_FOUND))\]"
    r"|\[RESPONSE_ALREADY_RECEIVED\] INVALID_HANDLE\.SESSION_NOT_FOUND"
)
"""The last condition is the client's: it had a part of a statement's answer, and the server does not know the session."""

_STATEMENT_LOST = re.compile(
    r"\[INVALID_HANDLE\.OPERATION_(ABANDONED|NOT_FOUND)\]|\[RESPONSE_ALREADY_RECEIVED\] INVALID_HANDLE\.OPERATION_NOT_FOUND"
)


def names_lost_session(whole: str) -> bool:
    """Return whether the text of an error says that a server of Spark Connect does not know the session."""
    return _SESSION_LOST.search(whole) is not None


def names_lost_statement(whole: str) -> bool:
    """Return whether the text of an error says that a server gave up a statement whose rows nobody read; its session lives."""
    return _STATEMENT_LOST.search(whole) is not None


def shown_endpoint(remote: str) -> str:
    """Return scheme, host and port of an endpoint: its other parts may hold a token or a password."""
    address = urlsplit(remote)
    return f"{address.scheme}://{address.netloc.rpartition('@')[2].partition(';')[0]}"


def refuse_silent(remote: str, timeout_s: float) -> None:
    """Raise `UpstreamUnavailable` if no server answers.

    Spark's own client retries for ten minutes, and reports nothing meanwhile.
    """
    address = urlsplit(shown_endpoint(remote))
    try:
        place = (address.hostname or "", address.port or _CONNECT_PORT)
        socket.create_connection(place, timeout=timeout_s).close()
    except (OSError, ValueError) as error:
        refuse_ended(remote)
        directory = _directory_of(remote)
        raise UpstreamUnavailable(
            "Spark Connect does not answer",
            code="spark-unreachable",
            detail=f"{shown_endpoint(remote)}: {error}.",
            hint=f"The server's process runs: read {log_file(directory, _NAME)}, or start it again: lakehold spark down, then up."
            if directory
            else "Start a server on this machine with lakehold spark up, or correct or unset LAKEHOLD_SPARK_REMOTE.",
        ) from error


def refuse_ended(remote: str) -> None:
    """Raise `UpstreamUnavailable` if `lakehold spark` started the server at `remote`, and its process has ended."""
    directory = _directory_of(remote)
    if directory and (how := ended(directory)):
        raise UpstreamUnavailable(
            "the Spark Connect server has ended",
            code="spark-unreachable",
            detail=f"{shown_endpoint(remote)}: {how}",
            hint=f"Read {log_file(directory, _NAME)}, then start the server again: lakehold spark up.",
        )


def ended(directory: Path) -> str:
    """Describe how the process of the server of `directory` ended; empty if it runs."""
    record = pid_file(directory, _NAME)
    if processes.recorded(record):
        return ""
    if not record.exists():
        return "lakehold spark down stopped it."
    if lines := spark_log.last_lines(log_file(directory, _NAME)):
        return "\n".join(["its process is gone. The end of its log:", *lines])
    return (
        "its process is gone, and its log does not say why: lakehold spark down or a signal stopped it, or the kernel "
        "killed it because the machine's memory ran out, which dmesg shows."
    )


def recorded_port(directory: Path) -> int | None:
    """Return the port on which the server of `directory` was last started; None if it never was."""
    return read_record(port_file(directory)).get("port")


def port_file(directory: Path) -> Path:
    """Return the record of the port of the server of `directory`."""
    return directory / "spark.json"


def _directory_of(remote: str) -> Path | None:
    """Return the directory of the server of `lakehold spark` that has the address `remote`, if there is one."""
    address = urlsplit(remote)
    try:
        directory = default_directory(_NAME, "LAKEHOLD_SPARK_DIR")
        is_its_own = address.hostname in _THIS_MACHINE and (address.port or _CONNECT_PORT) == recorded_port(directory)
    except (LakeholdError, ValueError):  # no number as port, no home, or a directory that only another user reads
        return None
    return directory if is_its_own else None
