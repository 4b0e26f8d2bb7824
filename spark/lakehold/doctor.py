"""Findings of `lakehold doctor`: what lakehold needs on this machine, and from the systems of a lake's connections.

The client of a system is imported when a connection to such a system is examined.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata

from lakehold import artifacts
from lakehold.definitions import Connection, ConnectionType
from lakehold.errors import EnvironmentMissing, LakeholdError
from lakehold.iceberg.object_stores import jar_set
from lakehold.lake import Lake
from lakehold.secrets import resolve
from lakehold.settings import Settings
from lakehold.spark_endpoint import refuse_silent

COLUMNS = ("checked", "state", "found", "hint")
"""Columns of a finding; `state` is `ok` or `failed`."""

_JAVA = 17
_JAVA_VERSION = re.compile(r'version "(\d+)')

Row = tuple[str, str, str, str]


def examine(settings: Settings, open_lake: Callable[[], Lake]) -> Iterator[Row]:
    """Yield a row of `COLUMNS` for each thing that lakehold needs, as it is examined; nothing is changed or fetched.

    What depends on a thing that is missing is left out: the connections are in the lake.

    Args:
        settings: The settings of the lake.
        open_lake: Opens the lake; called once.
    """
    timeout_s = settings.upstream_timeout_ms / 1000
    yield _row("Python", _python)
    if settings.spark_remote is None:
        yield _row("Java", _java)
        for name in filter(None, ("spark", jar_set(settings))):
            yield _row(f"jars: {name}", partial(_jars, name))
    else:
        yield _row("Spark Connect", partial(_spark_connect, settings.spark_remote, timeout_s))
    found: list[Lake] = []
    yield _row("lake", partial(_lake, settings, open_lake, found))
    for lake in found:
        defined = lake.definitions.definitions()
        for name, entry in sorted(defined.connections.items()):
            yield _row(f"connection {name}", partial(_answer, entry.definition, timeout_s))
        captures = any(entry.definition.capture is not None for entry in defined.sources.values())
        for problem in lake.captured.problems() if captures else ():
            source, _, reason = problem.partition(": ")
            yield (source, "failed", reason, "lakehold status has more.")


def _row(checked: str, examined: Callable[[], str]) -> Row:
    try:
        return (checked, "ok", examined(), "")
    except LakeholdError as error:
        return (checked, "failed", " ".join(filter(None, (f"{error.message}.", error.detail))), error.hint)


def _python() -> str:
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("lakehold", "pyspark", "pyiceberg"))
    return f"Python {sys.version.split()[0]}, {packages}"


def _java() -> str:
    java = artifacts.java_executable()
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    first = printed.strip().partition("\n")[0]
    version = _JAVA_VERSION.search(printed)
    if version is None or int(version[1]) < _JAVA:
        raise EnvironmentMissing(
            f"Java {_JAVA} or later is needed",
            code="java-version",
            detail=f"{java} says: {first or 'nothing'}.",
            hint="Install openjdk-17-jre-headless, or set JAVA_HOME to a later Java.",
        )
    return f"{first}, {java}"


def _jars(name: str) -> str:
    if artifacts.is_cached(name):
        return f"fetched, in {artifacts.cache_root()}"
    if shutil.which("mvn") is None:
        raise EnvironmentMissing(
            "the jars are not fetched, and there is no Maven",
            code="artifact-fetch",
            detail="No mvn is on the PATH.",
            hint="Install maven; or bring the jars yourself, in the setting spark_conf.",
        )
    return "not fetched yet: the first statement that needs Spark fetches them with Maven"


def _spark_connect(remote: str, timeout_s: float) -> str:
    refuse_silent(remote, timeout_s)
    return f"{remote} answers"


def _lake(settings: Settings, open_lake: Callable[[], Lake], found: list[Lake]) -> str:
    path = settings.warehouse_path
    if path is not None and not path.exists():
        return f"there is none at {path} yet: the first statement makes it"
    lake = open_lake()
    defined = lake.definitions.definitions()
    found.append(lake)
    return f"{settings.warehouse}: {len(defined.sources)} source(s), {len(defined.tables)} table(s)"


def _answer(connection: Connection, timeout_s: float) -> str:
    """Ask the system of a connection something small, and return what it is and has."""
    options: Mapping[str, str] = resolve(connection.options)
    match connection.type:
        case ConnectionType.KAFKA:
            from lakehold.kafka.client import shared_client
            from lakehold.kafka.connection_options import kafka_options

            # Unlike a list of all topics, this request reports a refused login at once.
            shared_client(kafka_options(options), timeout_s).describe({"lakehold"})
            return "Kafka answers"
        case ConnectionType.SCHEMA_REGISTRY:
            from lakehold.kafka.registry import registry_of

            registry_of(options, timeout_s=timeout_s).subject_ids("lakehold")
            return "the registry answers"
        case ConnectionType.CONNECT:
            from lakehold.upstream.connect_client import ConnectClient
            from lakehold.upstream.connections import connect_address

            with ConnectClient(**vars(connect_address(options)), timeout_s=timeout_s) as client:
                return f"Kafka Connect answers; {len(client.names())} connectors"
        case ConnectionType.POSTGRES:
            from lakehold.upstream.connections import login_of
            from lakehold.upstream.postgres import PostgresUpstream

            PostgresUpstream(login_of(connection), timeout_s).columns(())
            return "PostgreSQL takes the login"
        case ConnectionType.MYSQL | ConnectionType.MARIADB:
            from lakehold.upstream.connections import login_of
            from lakehold.upstream.mysql import MysqlUpstream

            MysqlUpstream(login_of(connection), timeout_s).row_image()
            return f"{connection.type.value} takes the login"
