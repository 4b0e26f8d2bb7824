"""From a source's definition to its reader."""

from __future__ import annotations

from collections.abc import Mapping

from lakehold.definitions import Source
from lakehold.errors import DefinitionError
from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.reader import Reader
from lakehold.kafka.options import kafka_options


def open_reader(
    source: Source, connection: Mapping[str, str], *, timeout_s: float = 15.0, parallelism: int = 1
) -> Reader:
    """The reader of `source`; nothing is asked of a broker yet.

    Args:
        source: Where its records come from.
        connection: Options of its Kafka connection, secrets already looked up; empty for FILES.
        timeout_s: How long a broker may stay silent.
        parallelism: How many tasks a large read has at least: the session's number of cores.

    Raises:
        DefinitionError: The connection's options cannot be used, or the source names neither a connection nor a path.
        UpstreamError: The path is no directory of this machine.
    """
    if source.path is not None:
        return FilesReader(source.path, parallelism=parallelism)
    if source.connection is None:
        raise DefinitionError(
            f'source "{source.name}" has neither a connection nor a path',
            hint="Create it with FROM KAFKA CONNECTION … or FROM FILES '…'.",
        )
    return KafkaReader(kafka_options(connection), timeout_s=timeout_s, parallelism=parallelism)
