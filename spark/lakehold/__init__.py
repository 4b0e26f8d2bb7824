"""lakehold keeps Apache Iceberg tables equal to upstream databases, and lets people read exactly how they changed.

The names below are loaded at their first use: importing `lakehold`, as a DAG file does, does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakehold.pyspark_conflict import refuse_overwritten_pyspark

if TYPE_CHECKING:
    from lakehold.errors import LakeholdError
    from lakehold.lake import Lake, connect

__all__ = ["Lake", "LakeholdError", "connect"]

_HOMES = {"Lake": "lakehold.lake", "connect": "lakehold.lake", "LakeholdError": "lakehold.errors"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name != "LakeholdError":
        refuse_overwritten_pyspark()
    return getattr(import_module(_HOMES[name]), name)
