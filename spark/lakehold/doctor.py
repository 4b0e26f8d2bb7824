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
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import metadata

from pyiceberg.catalog.sql import SqlCatalog

from lakehold import artifacts
from lakehold.definitions import Connection, ConnectionType
from lakehold.errors import EnvironmentMissing, LakeholdError
from lakehold.iceberg.object_stores import jar_set
from lakehold.iceberg.properties import is_rest, is_sqlite
from lakehold.lake import Lake
from lakehold.model.lake_definitions import Definitions
from lakehold.secrets import resolve
from lakehold.servers import processes
from lakehold.servers.ports import refuse_ports_in_use
from lakehold.servers.server_directory import default_directory
from lakehold.settings import Settings
from lakehold.spark_endpoint import refuse_silent, shown_endpoint
from lakehold.times import now_ms
from lakehold.upstream.wanted.account import Account, Lack

COLUMNS = ("checked", "state", "found", "hint")
"""Columns of a finding; `state` is `ok` or `failed`."""

CLOCK_TOLERANCE_MS = 3_000
"""How much clocks may differ: leases last 15 s, and HTTP reports whole seconds."""

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
    yield ("ports", "ok", *_ports())
    found: list[Lake] = []
    yield _row("lake", partial(_lake, settings, open_lake, found))
    for lake in found:
        yield from _clock("the catalog", _catalog_clock(lake, settings, timeout_s))
        defined = lake.definitions.definitions()
        for name, entry in sorted(defined.connections.items()):
            yield from _connection(name, entry.definition, defined, timeout_s)
        for name in sorted(defined.sources_with_tables):
            yield _row(f"topics of {name}", partial(_topics, lake, name))
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
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        # Such as a file that is not executable, or a Java of another processor.
        raise _java_needed(f"{java} does not start: {error.strerror}.") from error
    first = printed.strip().partition("\n")[0]
    version = _JAVA_VERSION.search(printed)
    if version is None or int(version[1]) < _JAVA:
        raise _java_needed(f"{java} says: {first or 'nothing'}.")
    return f"{first}, {java}"


def _java_needed(detail: str) -> EnvironmentMissing:
    return EnvironmentMissing(
        f"Java {_JAVA} or later is needed",
        code="java-version",
        detail=detail,
        hint="Install openjdk-17-jre-headless, or set JAVA_HOME to a later Java.",
    )


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
    return f"{shown_endpoint(remote)} answers"


def _lake(settings: Settings, open_lake: Callable[[], Lake], found: list[Lake]) -> str:
    try:
        lake = open_lake()
    except LakeholdError as error:
        if error.code != "lake-missing":
            raise
        return f"there is none in {settings.warehouse} yet: the first statement makes it"
    defined = lake.definitions.definitions()
    found.append(lake)
    return f"{settings.warehouse}: {len(defined.sources)} source(s), {len(defined.tables)} table(s)"


def _ports() -> tuple[str, str]:
    """Return which ports of `lakehold stack` other programs have, which nothing else needs, and what to do."""
    from lakehold.stack.composition import StackPlan

    try:
        plan = StackPlan.recorded(default_directory("stack", "LAKEHOLD_STACK_DIR"))
        missing = [part for part in plan.parts() if processes.recorded(part.pid_file) is None]
        refuse_ports_in_use(missing)
    except LakeholdError as error:
        return f"the stack cannot start: {error.message}. {error.detail}", error.hint
    return "those of lakehold stack are free, or its own", ""


def _topics(lake: Lake, name: str) -> str:
    return f"they can be read; {lake.pending(name):,} messages are new"


def _connection(name: str, connection: Connection, defined: Definitions, timeout_s: float) -> Iterator[Row]:
    """Yield whether the system of a connection answers, what a capture lacks there, and whether its clock differs."""
    found: list[Answer] = []

    def answered() -> str:
        found.append(_answer(connection, _captured(name, defined), timeout_s))
        return found[0].text

    yield _row(f"connection {name}", answered)
    for answer in found:
        for what, hint in answer.lacks:
            yield (f"capture by {name}", "failed", what, hint)
        yield from _clock(name, answer.differs_ms)


def _clock(whose: str, differs_ms: int | None) -> Iterator[Row]:
    """Yield that a clock differs from this machine's by more than it may."""
    if differs_ms is not None and abs(differs_ms) > CLOCK_TOLERANCE_MS:
        how = f"{abs(differs_ms) / 1000:,.0f} s {'ahead of' if differs_ms > 0 else 'behind'} this machine's"
        yield (f"clock of {whose}", "failed", f"it is {how}", "Let NTP set the clocks of both machines.")


def _catalog_clock(lake: Lake, settings: Settings, timeout_s: float) -> int | None:
    """Return how much the clock of the catalog's server is ahead; None if it has no server, or does not say."""
    if is_rest(settings.catalog_uri):
        return _http_clock(settings.catalog_uri, timeout_s)
    if is_sqlite(settings.catalog_uri) or not isinstance(lake.catalog, SqlCatalog):
        return None
    with lake.catalog.engine.connect() as connection:
        seconds = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one()
    return round(float(seconds) * 1000) - now_ms()


def _captured(name: str, defined: Definitions) -> frozenset[str] | None:
    """Return the tables that sources capture by a connection; None if no source captures by it."""
    sources = {
        source
        for source, entry in defined.sources.items()
        if entry.definition.capture is not None and entry.definition.capture.connection == name
    }
    tables = (entry.definition for entry in defined.tables.values() if entry.definition.source in sources)
    return frozenset(table.upstream for table in tables if table.upstream is not None) if sources else None


@dataclass(frozen=True)
class Answer:
    """The answer of a system: a text, how much its clock is ahead if it is known, and what a capture lacks."""

    text: str
    differs_ms: int | None = None
    lacks: tuple[Lack, ...] = ()


def _answer(connection: Connection, captured: frozenset[str] | None, timeout_s: float) -> Answer:
    """Ask the system of a connection something small; `captured` are the tables that sources capture there, if any does."""
    options: Mapping[str, str] = resolve(connection.options)
    match connection.type:
        case ConnectionType.KAFKA:
            from lakehold.kafka.client import shared_client
            from lakehold.kafka.connection_options import kafka_options

            shared_client(kafka_options(options), timeout_s).check_login()
            return Answer("Kafka answers")
        case ConnectionType.SCHEMA_REGISTRY:
            from lakehold.kafka.registry import registry_of

            registry_of(options, timeout_s=timeout_s).subject_ids("lakehold")
            return Answer("the registry answers", _http_clock(options["url"].partition(",")[0], timeout_s))
        case ConnectionType.CONNECT:
            from lakehold.upstream.connect.client import ConnectClient
            from lakehold.upstream.wanted.connections import connect_address

            with ConnectClient(**vars(connect_address(options)), timeout_s=timeout_s) as client:
                text = f"Kafka Connect answers; {len(client.names())} connectors"
            return Answer(text, _http_clock(options["url"].partition(",")[0], timeout_s))
        case ConnectionType.POSTGRES | ConnectionType.MYSQL | ConnectionType.MARIADB:
            from lakehold.upstream.databases import database_of
            from lakehold.upstream.wanted.connections import login_of

            account = database_of(connection.type, login_of(connection), timeout_s).account(captured or ())
            name = "PostgreSQL" if connection.type is ConnectionType.POSTGRES else connection.type.value
            return _of_account(name, account, captured)


def _of_account(database: str, account: Account, captured: frozenset[str] | None) -> Answer:
    lacks = account.lacks if captured is not None else ()
    return Answer(f"{database} takes the login", account.clock_ms - now_ms(), lacks)


def _http_clock(url: str, timeout_s: float) -> int | None:
    """Return how much the clock of an HTTP server is ahead, to a second; None if it does not say."""
    import httpx

    with suppress(httpx.HTTPError, ValueError, KeyError):
        sent = httpx.get(url, timeout=timeout_s).headers["date"]
        return round(parsedate_to_datetime(sent).timestamp() * 1000) - now_ms()
    return None
