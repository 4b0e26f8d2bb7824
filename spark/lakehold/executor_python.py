"""Python functions that Spark runs on its executors, and the error when an executor's Python cannot run them.

Such a function arrives by the name of its module, so executors need lakehold installed, in the version of the driver, for the
driver's minor version of Python. On one machine they use the driver's own installation.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehold.errors import EnvironmentMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Batches = Iterable[pa.RecordBatch]

_CONF = "spark.pyspark.python"
_VARIABLE = "PYSPARK_PYTHON"

_OTHER_VERSION = "lakehold on an executor is version"

_CAUSES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<cause>No module named '(?:lakehold|numpy|pandas|pyarrow|pyiceberg|pyspark)\b[\w.]*')",
        rf"(?P<cause>{_OTHER_VERSION} \S+, in the driver \S+)",
        r"\[PYTHON_VERSION_MISMATCH\] (?P<cause>Python in worker [^\n]*?minor versions)",
        r"\[PACKAGE_NOT_INSTALLED\] (?P<cause>\w+ >= [^\n]*?; however, [^\n]*?)\.(?:\n|$)",
        r'(?P<cause>Cannot run program "[^"]*")',
    )
)
"""Texts of Spark's errors that name what an executor's Python lacks."""


def map_in_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: StructType | str) -> DataFrame:
    """Run `function` on the executors, over the batches of each of the frame's partitions.

    Args:
        frame: The rows.
        function: Turns batches of rows into batches of `schema`.
        schema: The columns of the result.
    """
    return frame.mapInArrow(partial(_run, function, metadata.version("lakehold")), schema)


def interpreter(spark_conf: Mapping[str, str]) -> str:
    """Return the Python that executors start, in Spark's order: its setting, `PYSPARK_PYTHON`, the driver's own."""
    return spark_conf.get(_CONF) or os.environ.get(_VARIABLE) or sys.executable


def executor_lacks(whole: str) -> EnvironmentMissing | None:
    """Return the error to report if the text of a Spark error says that an executor's Python cannot run lakehold."""
    found = next(filter(None, (cause.search(whole) for cause in _CAUSES)), None)
    if found is None:
        return None
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return EnvironmentMissing(
        "the Python of Spark's executors cannot run lakehold's functions",
        code="executor-python",
        detail=f"{found['cause']}.",
        hint=f"Install lakehold {metadata.version('lakehold')} for Python {python} on every machine that runs executors, "
        f"and name that interpreter in {_VARIABLE} where the driver starts, or ship it in spark.archives.",
    )


def _run(function: Callable[[Batches], Batches], version: str, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Run `function` on an executor, if lakehold there is the driver's."""
    if (found := metadata.version("lakehold")) != version:
        raise RuntimeError(f"{_OTHER_VERSION} {found}, in the driver {version}")
    yield from function(batches)
