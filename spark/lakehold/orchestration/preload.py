"""Imports what tasks need once, in the scheduler: tasks are forked from it and start with the modules loaded.

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

MODULES = ("lakehold.lake", "lakehold.session", "pyspark.sql.connect.session", "lakehold.quality.expectations")
"""The modules that tasks import; the last needs the extra `quality`. None of them starts a thread or opens a connection."""

log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: Any) -> None:  # noqa: ARG001 - Airflow calls it by this name
    """Import the modules of tasks when a scheduler with LocalExecutor starts, which runs tasks in its own forks.

    Airflow calls it when one of its components starts.
    """
    if MODULES[0] in sys.modules:
        return  # a task, in a fork
    # Airflow's component is not initialized yet and cannot report its kind: the command line shows it.
    if sys.argv[1:2] != ["scheduler"] or "LocalExecutor" not in conf.get("core", "executor"):
        return
    for name in MODULES:
        with suppress(ImportError):
            import_module(name)
    log.info("lakehold is imported, tasks need not do it")
