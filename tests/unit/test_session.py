"""The configuration of the Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold import artifacts
from lakehold.errors import EnvironmentMissing
from lakehold.session import session_conf
from lakehold.settings import load_settings
from lakehold.spark_sql import PLAIN_TEXT_CONF

OPTIONS = [f"spark.{of}.extraJavaOptions" for of in ("driver", "executor")]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    ("own", "collectors"),
    [
        ("", ["-XX:+UseParallelGC"]),
        ("-Xss4m", ["-XX:+UseParallelGC"]),
        ("-XX:+UseZGC -Xss4m", ["-XX:+UseZGC"]),
    ],
)
def test_a_user_may_choose_the_garbage_collector(own: str, collectors: list[str], name: str) -> None:
    conf = session_conf(load_settings(warehouse="w", spark_conf={name: own} if own else {}))
    options = conf[name].split()
    assert [option for option in options if option.endswith("GC")] == collectors
    assert set(own.split()) <= set(options)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_corrupt_record_cannot_take_a_driver_or_an_executor_down(name: str) -> None:
    assert "-Dorg.apache.avro.limits.bytes.maxLength=67108864" in session_conf(load_settings(warehouse="w"))[name]


@pytest.mark.parametrize("master", ["spark://one:7077", "yarn", "k8s://https://one:6443"])
def test_a_cluster_has_the_drivers_address_and_the_shuffle_partitions_that_spark_finds_or_the_user_sets(
    master: str,
) -> None:
    settings = load_settings(warehouse="w", spark_master=master)
    own_machine = {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"}
    assert own_machine <= session_conf(load_settings(warehouse="w", spark_master="local[4]")).keys()
    assert not own_machine & session_conf(settings).keys()
    own = load_settings(warehouse="w", spark_master=master, spark_conf={"spark.driver.host": "ten.example"})
    assert session_conf(own)["spark.driver.host"] == "ten.example"


def test_nothing_is_left_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_CACHE_DIR", str(tmp_path / "cache"))
    own = {"spark.jars": "/opt/jars/*.jar"}
    expected = (tmp_path / "cache" / "spark-warehouse").as_uri()
    assert session_conf(load_settings(warehouse="w", spark_conf=own))["spark.sql.warehouse.dir"] == expected
    mine = load_settings(warehouse="w", spark_conf=own | {"spark.sql.warehouse.dir": "/mine"})
    assert session_conf(mine)["spark.sql.warehouse.dir"] == "/mine"


def test_executors_send_a_store_the_checksums_that_the_driver_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build it in a process that has opened the catalog, which has the variables itself."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
    store = {"s3.endpoint": "http://127.0.0.1:9000"}
    place = {
        "warehouse": "s3://bucket/lake",
        "catalog_uri": "postgresql+psycopg2://db/lake",
        "catalog_properties": store,
    }
    conf = session_conf(load_settings(**place, spark_conf={"spark.jars": "/opt/jars/*.jar"}))
    assert conf["spark.executorEnv.AWS_REQUEST_CHECKSUM_CALCULATION"] == "WHEN_REQUIRED"
    assert "-Daws.requestChecksumCalculation=WHEN_REQUIRED" in conf["spark.driver.extraJavaOptions"].split()


@pytest.mark.parametrize("master", ["local[*]", "local[4]", "local"])
def test_a_driver_alone_listens_on_this_machine_only(master: str) -> None:
    conf = session_conf(load_settings(warehouse="w", spark_master=master))
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_no_setting_of_a_user_changes_how_spark_reads_texts() -> None:
    conf = session_conf(load_settings(warehouse="w", spark_conf={"spark.sql.variable.substitute": "true"}))
    assert conf.items() >= PLAIN_TEXT_CONF.items()


@pytest.fixture
def without_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Java on the PATH, and an empty cache."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("LAKEHOLD_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.usefixtures("without_maven")
def test_without_maven_the_error_says_how_to_bring_the_jars() -> None:
    with pytest.raises(EnvironmentMissing) as refusal:
        session_conf(load_settings(warehouse="w"))
    assert refusal.value.code == "artifact-fetch"
    assert refusal.value.detail == "No mvn is on the PATH."
    assert (
        f"copy the folder {artifacts.find_set('spark').key} from the cache of a machine that has it"
        in refusal.value.hint
    )
    assert '{"spark.jars": "/a/folder/*.jar"}' in refusal.value.hint
    assert "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:" in refusal.value.hint
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1," in refusal.value.hint


@pytest.mark.usefixtures("without_maven")
@pytest.mark.parametrize(
    "own",
    [
        {"spark.jars": "/opt/jars/*.jar"},
        {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
    ],
)
def test_jars_that_the_user_brings_are_not_fetched(own: dict[str, str]) -> None:
    conf = session_conf(load_settings(warehouse="w", spark_conf=own))
    assert {name: value for name, value in conf.items() if name.startswith("spark.jars")} == own
