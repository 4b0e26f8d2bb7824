"""The `lakehold` command."""

from __future__ import annotations

import sys

from lakehold.errors import LakeholdError
from lakehold.pyspark_conflict import refuse_overwritten_pyspark


def main() -> None:
    """Run the `lakehold` command; refuse to start where importing `pyspark` fails for a reason that is known."""
    try:
        refuse_overwritten_pyspark()
    except LakeholdError as error:
        sys.exit(f"error: {error}\ncode: {error.code}")
    from lakehold.cli.app import main as run  # noqa: PLC0415 - it imports `pyspark`

    run()
