"""The configuration of the Spark session."""

from __future__ import annotations

import pytest

from lakehold.session import session_conf
from lakehold.settings import load_settings
from lakehold.spark_sql import PLAIN_TEXT_CONF

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize(
    ("own", "collectors"),
    [
        ("", ["-XX:+UseParallelGC"]),
        ("-Xss4m", ["-XX:+UseParallelGC"]),
        ("-XX:+UseZGC -Xss4m", ["-XX:+UseZGC"]),
    ],
)
def test_a_user_may_choose_the_garbage_collector(own: str, collectors: list[str]) -> None:
    conf = session_conf(load_settings(warehouse="w", spark_conf={OPTIONS: own} if own else {}))
    options = conf[OPTIONS].split()
    assert [option for option in options if option.endswith("GC")] == collectors
    assert set(own.split()) <= set(options)


def test_no_setting_of_a_user_changes_how_spark_reads_texts() -> None:
    conf = session_conf(load_settings(warehouse="w", spark_conf={"spark.sql.variable.substitute": "true"}))
    assert conf.items() >= PLAIN_TEXT_CONF.items()
