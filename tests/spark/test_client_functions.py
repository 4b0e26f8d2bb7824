"""The functions that clients of a served lake may call, beside those that Spark has."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakehold.serve.admission import admitted
from lakehold.serve.client_functions import CLIENT_FUNCTIONS, REACHING_FUNCTIONS

pytestmark = pytest.mark.spark

OPERATORS = {"and", "or", "not", "in", "between", "case", "when"}


def test_clients_may_call_each_function_of_spark_that_reaches_nothing(spark: SparkSession) -> None:
    registered = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    functions = {name for name in registered if name.replace("_", "").isalnum()} - OPERATORS
    assert functions - CLIENT_FUNCTIONS == REACHING_FUNCTIONS
    for name in sorted(functions - REACHING_FUNCTIONS):
        ordered = f"SUBSCRIBE a.b WITHIN TIMESTAMP ORDER BY {name}(1, 'x')"
        assert admitted(ordered, "lake", lambda _: False).text == ordered
