"""The `lakehold` command."""

from __future__ import annotations

import gc
import sys

from lakehold.errors import LakeholdError
from lakehold.pyspark_conflict import refuse_overwritten_pyspark

_ALLOCATIONS = 100_000
"""New objects after which Python searches for garbage."""


def main() -> None:
    """Run the `lakehold` command; refuse to start where importing `pyspark` fails for a reason that is known."""
    # Imports make a million objects that stay: by default, the garbage collector searches them again and again.
    gc.set_threshold(_ALLOCATIONS)
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
