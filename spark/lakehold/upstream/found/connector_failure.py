"""The cause of a failed connector or task: Java's stack trace -> one line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakehold.object_names import object_text

_LOG_IS_GONE = re.compile(r"\bpurged\b|could not find first log file|no longer available on the server", re.IGNORECASE)
"""Texts of Debezium, and of servers of MySQL and MariaDB, about a purged binary log. The servers write them in English always."""
_OTHER_COLUMNS = re.compile(r"internal schema size|whose schema isn't known to this connector")
"""Texts of Debezium about a row that has other columns than Debezium knows."""
_HEAD = "Caused by: "
_FRAME = re.compile(r"\s+(at |\.\.\. \d+ |Suppressed: )|\s*\[CIRCULAR REFERENCE")
_THROWN = re.compile(r"(?:[a-z_]\w*\.)+(?:\w+\$)*(?P<name>[A-Z]\w*(?:Exception|Error))(?:: ?(?P<message>.*))?")


def cause_of(trace: str) -> str:
    """Return the deepest message of a stack trace after the plain name of its class, in one line without a full stop.

    A deeper cause without a message is named after it. Empty: there is no trace.
    """
    found = [_read(text) for text in _causes(trace)]
    with_message = [(name, message) for name, message in found if message]
    if not found:
        return ""
    deepest, _ = found[-1]
    if not with_message:
        return f"{deepest}, without a message: the worker's log says more"
    name, message = with_message[-1]
    suffix = "" if deepest == name else f" ({deepest})"
    return f"{name}: {message}{suffix}" if name else f"{message}{suffix}"


def with_way_out(reason: str, source: str) -> str:
    """Add to the reason of a connector's failure what a person must do, where no restart helps."""
    if _OTHER_COLUMNS.search(reason) is not None:
        return f"{reason}. If the next ingest does not repair it: ALTER SOURCE {object_text(source)} RESNAPSHOT"
    if _LOG_IS_GONE.search(reason) is None:
        return reason
    return f"{reason}. Changes that it had not read are in no binary log any more: ALTER SOURCE {object_text(source)} RESNAPSHOT"


def _causes(trace: str) -> Iterator[str]:
    """Yield the text of each cause, the outermost first. A message may have several lines; suppressed exceptions are skipped."""
    message: list[str] = []
    is_message = True
    for line in trace.splitlines():
        if line.startswith(_HEAD):
            yield from [" ".join(message)] if message else []
            message, is_message = [line.removeprefix(_HEAD)], True
        elif _FRAME.match(line):
            is_message = False
        elif is_message and line.strip():
            message.append(line)
    yield from [" ".join(message)] if message else []


def _read(text: str) -> tuple[str, str]:
    """Split a cause into the plain name of its class and its message; either may be empty.

    An exception that is made of its cause alone has that cause's class and message as its message: the inner ones are returned.
    """
    name, message = "", " ".join(text.split())
    while (thrown := _THROWN.fullmatch(message)) is not None:
        name, message = thrown["name"], (thrown["message"] or "").strip()
    return name, message.removesuffix(".")
