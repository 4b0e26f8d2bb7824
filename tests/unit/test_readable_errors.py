"""Readers translate Spark's errors while they read, and leave PySpark's log to the program between two rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import permutations
from logging import Logger

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from lakehold.errors import LakeholdError
from lakehold.spark_errors import readable, readable_each


@pytest.fixture
def log() -> Iterator[Logger]:
    """Return the log to which PySpark writes the errors of statements; it is not silent."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.disabled = False
    yield logger
    logger.disabled = False


@pytest.mark.parametrize("ends", list(permutations(range(3))))
def test_reads_that_overlap_restore_pysparks_log_when_the_last_one_ends(log: Logger, ends: tuple[int, ...]) -> None:
    reads = [ExitStack() for _ in ends]
    for read in reads:
        read.enter_context(readable())
    for each in ends:
        assert log.disabled
        reads[each].close()
    assert not log.disabled


def test_a_reader_silences_pysparks_log_only_while_it_reads(log: Logger) -> None:
    silent = []

    def rows() -> Iterator[int]:
        try:
            silent.append(log.disabled)
            yield 1
            silent.append(log.disabled)
            raise AnalysisException("[DIVIDE_BY_ZERO] Division by zero.")
        finally:
            silent.append(log.disabled)

    reader = readable_each(rows())
    assert next(reader) == 1
    assert not log.disabled
    with pytest.raises(LakeholdError) as failed:
        next(reader)
    assert failed.value.code == "DIVIDE_BY_ZERO"
    assert not log.disabled
    assert silent == [True, True, True]


def test_a_reader_that_is_closed_closes_what_it_reads() -> None:
    closed = []

    def rows() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(1)

    reader = readable_each(rows())
    next(reader)
    reader.close()
    assert closed == [1]
