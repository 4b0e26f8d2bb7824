"""Imports what tasks need once, in the scheduler whose processes run them: they are forked from it, and have it at once.

An import of lakehold with Spark's client takes 3 s of a processor, one of Great Expectations 10 s: more than a small batch.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from airflow.configuration import conf
from airflow.listeners import hookimpl

MODULES = ("lakehold.lake", "pyspark.sql.connect.session", "lakehold.quality.expectations")
"""What tasks import; the last is there with the extra `quality` only. None of them starts a thread or opens a connection."""

log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: Any) -> None:  # noqa: ARG001 - Airflow calls it by this name
    """Called by Airflow when one of its parts begins; only a scheduler with LocalExecutor runs tasks in forks of its own."""
    if MODULES[0] in sys.modules:
        return  # a task, in a fork
    # The part does not know yet what it is.
    if sys.argv[1:2] != ["scheduler"] or "LocalExecutor" not in conf.get("core", "executor"):
        return
    for name in MODULES:
        with suppress(ImportError):
            import_module(name)
    log.info("lakehold is imported, tasks need not do it")
