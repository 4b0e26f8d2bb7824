"""The settings of all sessions that a lake works in: what a batch costs and what values are depend on them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import SparkSession

from lakehold.errors import DefinitionError, EnvironmentMissing
from lakehold.iceberg.properties import spark_catalog_conf
from lakehold.settings import Settings
from lakehold.spark_sql import PLAIN_TEXT_CONF, quoted

MERGE_CONF: Mapping[str, str] = {
    # The join follows the table's buckets: the batch is shuffled to them, the table is not.
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.shuffle.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.join.preferSortMergeJoin": "false",
    # A large batch is cached only while it is counted and merged: compressing it took a third of that time.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""Settings with which the cost of a merge follows the size of its changes; set on sessions made by others, too."""

VALUE_CONF: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
}
"""Settings on which the types of columns and the values of expressions depend: the same for all that write one table."""

_ALWAYS = {**MERGE_CONF, **PLAIN_TEXT_CONF, **VALUE_CONF}

_LOGIN = re.compile(r"(?<=//)[^/@]*@|\?.*")
"""The user of an address, and its options: they name no other catalog, and may hold a password."""


def prepared(spark: SparkSession, settings: Settings) -> SparkSession:
    """Give `spark`, which may be another program's session, the catalog of the lake and the settings that a batch relies on.

    Raises:
        DefinitionError: Its catalog of that name is another lake's.
        EnvironmentMissing: Its catalog keeps tables in a cache.
    """
    before = spark.conf.getAll  # each call of a Connect server takes milliseconds
    _refuse_other_lake(before, settings)
    catalog, conf = f"spark.sql.catalog.{settings.catalog_name}", spark_catalog_conf(settings)
    if catalog in before:
        _refuse_cache(catalog, before, conf)
    else:
        for name, value in conf.items():
            if name.startswith(catalog) and before.get(name) != value:
                spark.conf.set(name, value)
    _restore(spark, before)
    use_catalog(spark, settings)
    return spark


def restore_settings(spark: SparkSession) -> None:
    """Give a session again the settings that it had when it was prepared: its user may have changed them since."""
    _restore(spark, spark.conf.getAll)


def give(made: SparkSession, conf: Mapping[str, str]) -> None:
    """Set what may be set of `conf` in a new session, whose settings are those of the first session of the process."""
    for name, value in conf.items():
        # Spark calls the settings of catalogs not modifiable; the first session of the process may have others.
        may_be_set = made.conf.isModifiable(name) or name.startswith("spark.sql.catalog.")
        if made.conf.get(name, None) != value and may_be_set:
            made.conf.set(name, value)


def use_catalog(spark: SparkSession, settings: Settings) -> None:
    """Make names without a catalog those of the lake."""
    # A statement uses its own session in every thread; `spark.catalog` uses the session that is active in this thread.
    spark.sql(f"SET CATALOG {quoted(settings.catalog_name)}")


def _restore(spark: SparkSession, before: Mapping[str, str]) -> None:
    for name, value in _ALWAYS.items():
        # Spark Connect warns about each deprecated setting that is set, even to its present value or its default.
        if before.get(name) != value and (name not in PLAIN_TEXT_CONF or spark.conf.get(name) != value):
            spark.conf.set(name, value)


def _refuse_cache(catalog: str, before: Mapping[str, str], conf: Mapping[str, str]) -> None:
    """Raise `EnvironmentMissing` if a session's catalog keeps tables in a cache, as Iceberg's do by default.

    Commits of other sessions and programs would be seen late. A catalog that the session has opened keeps its cache.
    """
    name = f"{catalog}.cache-enabled"
    # Iceberg's catalog keeps no table either if it would drop each at once.
    keeps = before.get(name, "true").lower() != "false" and before.get(f"{catalog}.cache.expiration-interval-ms") != "0"
    if conf[name] == "false" and keeps:
        raise EnvironmentMissing(
            "the catalog of the Spark session keeps tables in a cache",
            code="session-incomplete",
            detail="Its queries would miss what other sessions and programs commit.",
            hint=f"Start Spark with this configuration:\n  {name}=false",
        )


def _refuse_other_lake(conf: Mapping[str, str], settings: Settings) -> None:
    """Raise `DefinitionError` if the catalog in a session's configuration belongs to another lake.

    A session opens a catalog once: a second lake of the same name would read and write the first one's tables.
    """
    for what in ("warehouse", "type", "uri"):
        name = f"spark.sql.catalog.{settings.catalog_name}.{what}"
        values = (each.get(name, "") for each in (conf, spark_catalog_conf(settings)))
        other, own = ((_LOGIN.sub("", value) if what == "uri" else value).rstrip("/") for value in values)
        if name in conf and other != own:
            raise DefinitionError(
                f'catalog "{settings.catalog_name}" of the Spark session is another lake',
                code="catalog-taken",
                detail=f"Its {what} is {other}, this lake's is {own}.",
                hint="Give one of them another name: connect(…, catalog_name=…) or LAKEHOLD_CATALOG_NAME.",
            )
