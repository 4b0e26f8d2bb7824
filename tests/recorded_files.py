"""Functions that write the directories of a FILES source."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path


def line(
    topic: str,
    partition: int,
    offset: int,
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    timestamp: int = 1_000,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> str:
    """Encode one recorded message, without its newline."""
    message = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": None if key is None else base64.b64encode(key).decode(),
        "value": None if value is None else base64.b64encode(value).decode(),
        "headers": [[name, None if each is None else base64.b64encode(each).decode()] for name, each in headers],
    }
    return json.dumps(message)


def append(path: Path, lines: Iterable[str]) -> None:
    """Add complete lines to a file, and create the file if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(f"{text}\n" for text in lines)
