"""Command lines of the stack's Java servers: small heaps and a quick start rather than throughput."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lakehold import artifacts

_LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")

_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
"""


def java(*arguments: str, heap_mb: int) -> list[str]:
    """Build the command line of a JVM whose heap is at most `heap_mb` MiB."""
    return [str(artifacts.java_executable()), *_LEAN, f"-Xmx{heap_mb}m", *arguments]


def kafka_java(arguments: Sequence[str], *, folder: Path, heap_mb: int) -> list[str]:
    """Build the command line of a class of the Kafka set, and write its log settings to `folder`."""
    logging_file = folder / "log4j2.properties"
    logging_file.write_text(_LOGGING)
    libraries = artifacts.directory("kafka") / "*"
    return java(f"-Dlog4j2.configurationFile={logging_file}", "-cp", str(libraries), *arguments, heap_mb=heap_mb)
