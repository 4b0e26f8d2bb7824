"""Where the server is if nothing else is said."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_PORT = 15_002
"""Spark's own for Spark Connect."""

_ROOT_DIRECTORY = Path("/var/lib/lakehold/spark")


def default_directory() -> Path:
    """Where the server keeps its log and its process record: `LAKEHOLD_SPARK_DIR`, by default `~/.local/state/lakehold/spark`.

    For root it is `/var/lib/lakehold/spark`.
    """
    configured = os.environ.get("LAKEHOLD_SPARK_DIR")
    if configured:
        return Path(configured)
    if os.geteuid() == 0:
        return _ROOT_DIRECTORY
    return Path.home() / ".local" / "state" / "lakehold" / "spark"
