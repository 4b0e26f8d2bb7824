"""Writes a file that other programs see whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a text in place of a file's content at once; what is no ordinary file, such as a pipe, gets it as it is.

    Raises:
        OSError: The file cannot be written.
    """
    target = file.resolve()  # a link stays a link
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    new = target.with_name(f".{target.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(target)
    except OSError:
        new.unlink(missing_ok=True)
        raise
