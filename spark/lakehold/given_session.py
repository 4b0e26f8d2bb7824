"""Sessions that another program made: refused, with the configuration to add, where Spark lacks a jar or an extension.

A running session takes neither, so lakehold names all that is missing at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from weakref import WeakSet

from pyspark.sql import SparkSession

from lakehold import artifacts
from lakehold.errors import EnvironmentMissing
from lakehold.iceberg.object_stores import jar_set
from lakehold.iceberg.properties import spark_catalog_conf
from lakehold.session import EXTENSION
from lakehold.settings import Settings
from lakehold.spark_errors import is_sparks, without_pyspark_log

_SOURCES = {
    "iceberg": "iceberg-spark-runtime-4.1_2.13",
    "kafka": "spark-sql-kafka-0-10_2.13",
    "avro": "spark-avro_2.13",
}
"""Artifacts by the name of the data source that they add to Spark."""

_DRIVERS = {"sqlite": ("org.sqlite.JDBC", "sqlite-jdbc"), "postgresql": ("org.postgresql.Driver", "postgresql")}
"""The driver's class and its artifact, by the database of a catalog."""

_STORE_CLIENTS = {
    "iceberg-aws": ("software.amazon.awssdk.services.s3.S3Client", "iceberg-aws-bundle"),
    "iceberg-gcp": ("com.google.cloud.storage.Storage", "iceberg-gcp-bundle"),
    "iceberg-azure": ("com.azure.storage.file.datalake.DataLakeFileClient", "iceberg-azure-bundle"),
}
"""A class of the client of an object store and its artifact, by the set of artifacts."""

_NOT_FOUND = re.compile(r"failed to find (the )?data source|ClassNotFoundException", re.I)

_complete: WeakSet[SparkSession] = WeakSet()
"""Sessions that lack nothing, which are not examined again."""


def refuse_incomplete(spark: SparkSession, settings: Settings) -> None:
    """Raise an error if the session lacks a jar or an extension that lakehold needs.

    Raises:
        EnvironmentMissing: The error lists all that is missing, and the configuration that adds it.
    """
    if spark in _complete:
        return
    missing = list(_missing_artifacts(spark, settings))
    extensions = spark.conf.get("spark.sql.extensions", None) or ""
    conf = {}
    if missing:
        sets = filter(None, ("spark", jar_set(settings)))
        packages = {artifact: found for name in sets for artifact, found in artifacts.coordinates(name).items()}
        conf["spark.jars.packages"] = ",".join(packages[name] for name in missing)
    if EXTENSION not in extensions:
        conf["spark.sql.extensions"] = ",".join(filter(None, (extensions, EXTENSION)))
    if conf:
        raise _refusal(spark, missing, conf)
    _complete.add(spark)


def _missing_artifacts(spark: SparkSession, settings: Settings) -> Iterator[str]:
    for source, artifact in _SOURCES.items():
        if not _is_known(spark, source, {}):
            yield artifact
    uri = spark_catalog_conf(settings)[f"spark.sql.catalog.{settings.catalog_name}.uri"]
    driver, artifact = next((found for name, found in _DRIVERS.items() if uri.startswith(f"jdbc:{name}:")), ("", ""))
    if driver and not _has_class(spark, driver):
        yield artifact
    client, artifact = _STORE_CLIENTS.get(jar_set(settings) or "", ("", ""))
    if client and not _has_class(spark, client):
        yield artifact


def _has_class(spark: SparkSession, name: str) -> bool:
    """Return whether Spark finds a class, which it loads as the driver of a database; no driver has the address."""
    return _is_known(spark, "jdbc", {"driver": name, "url": "jdbc:none:", "dbtable": "none"})


def _is_known(spark: SparkSession, source: str, options: Mapping[str, str]) -> bool:
    """Return whether Spark finds the classes of a data source: it then refuses to read with so few options."""
    try:
        with without_pyspark_log():
            _ = spark.read.format(source).options(**options).load().schema
    except Exception as error:
        if not is_sparks(error):
            raise
        return not _NOT_FOUND.search(str(error))
    return True


def _refusal(spark: SparkSession, missing: list[str], conf: Mapping[str, str]) -> EnvironmentMissing:
    lacks = [*missing, *([f"the extension {EXTENSION}"] if "spark.sql.extensions" in conf else [])]
    lines = "\n".join(f"  {name}={value}" for name, value in conf.items())
    return EnvironmentMissing(
        "the Spark session lacks what lakehold needs",
        code="session-incomplete",
        detail=f"Missing: {', '.join(lacks)}. A running session takes no jar and no extension; this one is of "
        f"Spark {spark.version}, and lakehold is for Spark 4.1.",
        hint=f"Start it with this configuration, or with spark.jars that hold the same:\n{lines}",
    )
