"""The `lakehold` command."""

from __future__ import annotations

import codecs
import gc
import io
import sys

from lakehold.errors import LakeholdError
from lakehold.pyspark_conflict import refuse_overwritten_pyspark

_ALLOCATIONS = 100_000
"""New objects after which Python searches for garbage."""


def main() -> None:
    """Run the `lakehold` command; refuse to start where importing `pyspark` fails for a reason that is known."""
    # Imports make a million objects that stay: by default, the garbage collector searches them again and again.
    gc.set_threshold(_ALLOCATIONS)
    _show_any_character()
    try:
        refuse_overwritten_pyspark()
    except LakeholdError as error:
        sys.exit(f"error: {error}\ncode: {error.code}")
    from lakehold.cli.app import main as run  # noqa: PLC0415 - it imports `pyspark`

    try:
        run()
    finally:
        # As it ends, Python searches everything for garbage once more, which takes a third of a second and frees only memory.
        gc.freeze()


def _show_any_character() -> None:
    """Have standard output show each character that its encoding lacks by its code, as JSON does: rows may have any."""
    codecs.register_error("lakehold-code", _by_code)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="lakehold-code")


def _by_code(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end
