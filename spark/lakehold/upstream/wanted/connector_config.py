"""Builds configurations of Debezium's connectors, as Kafka Connect takes them. Pure.

Each function returns some options; `wanted.py` puts a source's configuration together. A *signal* is a request to a connector,
such as for the snapshot of one table. It goes through a topic, or through a table in the database whose changes the connector
reads. Into this *signal table* Debezium also writes *marks*, rows before and after each portion that such a snapshot reads.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehold.upstream.types import value_options

_POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"
_MYSQL = "io.debezium.connector.mysql.MySqlConnector"
_MARIADB = "io.debezium.connector.mariadb.MariaDbConnector"

LOG_PREFIX = "lakehold"
"""Prefix of the logical messages that lakehold writes to PostgreSQL's log."""
SIGNAL_SCHEMA = "lakehold_signals"
"""The schema (in MySQL and MariaDB the database) of the tables in which connectors mark snapshots of joining tables."""
SEEN = "lakehold looked at "
"""Text before the time of lakehold's last inspection, epoch milliseconds, that a signal table keeps.

A database restored from a backup has an earlier time.
"""
_INCLUDED = "table.include.list"
_NO_TABLE = "(?!)"
"""An expression that matches no table: Debezium captures all tables if the list is empty."""
_AS_WRITTEN = re.compile(r"\(\?-i:(.*)\)")
_SIGNAL_TABLE = "signal.data.collection"
FAILOVER_SLOT = {"slot.failover": "true"}
"""The option of a connector that creates its slot as one that standbys copy, on PostgreSQL 17 and later."""
SENDS_TRUNCATES = {"skipped.operations": "none"}
"""The option of a connector that sends TRUNCATE, too: Debezium skips it by default."""
_LONGEST_NAME = 63
"""Longest name of a table of PostgreSQL, in characters; MySQL's may have one more."""

_HEARTBEAT_MS = 2_000
"""How often a connector writes a heartbeat. In a quiet database only heartbeats move its position and its slot on, and let ad-hoc
snapshots end.
"""

_KEEP_ALIVE_MS = 5_000
"""How often a connector of MySQL or MariaDB checks its connection, and so how soon it continues after a restart of the server.
Debezium's default is a minute.
"""

_SIGNAL_POLL_MS = 1_000
_SIGNAL_ANSWER_MS = 200
"""How long a poll for signals waits for the broker. Debezium's default of 0 takes several polls to get an answer."""


@dataclass(frozen=True)
class Login:
    """A database, and the user that reads it.

    Attributes:
        host: The server.
        port: Its port.
        user: The user.
        password: The user's password.
        database: Name of the database; empty for MySQL and MariaDB.
        tls: Arguments about TLS for lakehold's own client.
        connector_tls: The connector's options for the same, without `database.`.
    """

    host: str
    port: int
    user: str
    password: str
    database: str = ""
    tls: Mapping[str, Any] = field(default_factory=dict)
    connector_tls: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, timeout_s: float) -> dict[str, Any]:
        """Return the arguments by which the clients of both kinds of databases connect to the server."""
        timeout = max(1, round(timeout_s))
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "connect_timeout": timeout,
            **self.tls,
        }


@dataclass(frozen=True)
class SideTopics:
    """Topics of one connector beside those of its tables.

    Attributes:
        prefix: First part of the topics' names, and key of the connector's signals.
    """

    prefix: str

    @property
    def signals(self) -> str:
        """Return the topic of signals, which holds requests to the connector."""
        return f"{self.prefix}.signal"

    @property
    def notifications(self) -> str:
        """Return the topic in which the connector reports on its snapshots."""
        return f"{self.prefix}.notification"

    @property
    def heartbeats(self) -> str:
        """Return the topic of the connector's heartbeats."""
        return f"__debezium-heartbeat.{self.prefix}"

    @property
    def schema_history(self) -> str:
        """Return the topic in which connectors of MySQL and MariaDB keep the tables' structure over time."""
        return f"{self.prefix}.schema-history"


def debezium(topic_prefix: str, tables: Iterable[str]) -> dict[str, str]:
    """Build the options that connectors of all databases share; `tables` are names `schema.table` or `database.table`."""
    return {
        "tasks.max": "1",
        "topic.prefix": topic_prefix,
        _INCLUDED: ",".join(_included(table) for table in sorted(set(tables))),
        "provide.transaction.metadata": "true",
        "tombstones.on.delete": "true",
        **value_options.COMMON,
    }


def includes(config: Mapping[str, str], table: str) -> bool:
    """Return whether a connector lists `table`, as `debezium` or `as_written` does, among those that it captures."""
    listed = _listed(config)
    return _included(table) in listed or _as_written(_included(table)) in listed


def included_tables(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tables that a connector lists."""
    return tuple(re.sub(r"\\(.)", r"\1", _AS_WRITTEN.sub(r"\1", each)) for each in _listed(config))


def without_tables(config: Mapping[str, str], tables: Iterable[str]) -> dict[str, str]:
    """Return a configuration whose connector leaves out some tables that it lists, as `debezium` does."""
    out = {_included(table) for table in tables}
    return {**config, _INCLUDED: ",".join(each for each in _listed(config) if each not in out) or _NO_TABLE}


def _listed(config: Mapping[str, str]) -> list[str]:
    return list(filter(None, re.split(r"(?<!\\),", config.get(_INCLUDED, ""))))


def as_written(config: Mapping[str, str]) -> dict[str, str]:
    """Build the list of tables for a database that distinguishes upper from lower case, which Debezium by default does not."""
    return {_INCLUDED: ",".join(map(_as_written, _listed(config)))}


def _as_written(expression: str) -> str:
    return f"(?-i:{expression})"


def _included(table: str) -> str:
    """Return the regular expression that matches one table."""
    return re.sub(r"[^\w]", lambda c: f"\\{c[0]}", table)


def postgres(login: Login, *, publication: str, slot: str) -> dict[str, str]:
    """Build the options for PostgreSQL. The publication must exist; the connector creates the replication slot."""
    return {
        "connector.class": _POSTGRES,
        **_login(login),
        "database.dbname": login.database,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        **value_options.POSTGRES,
        # Debezium reports the message's transaction, which is all that it is for, and creates no topic.
        "message.prefix.exclude.list": LOG_PREFIX,
    }


def mysql(login: Login, *, server_id: int, is_mariadb: bool) -> dict[str, str]:
    """Build the options for MySQL or MariaDB; `server_id` distinguishes the connector from other replicas."""
    return {
        "connector.class": _MARIADB if is_mariadb else _MYSQL,
        **_login(login),
        "database.server.id": str(server_id),
        # Keep the structure of all databases: a table that joins later may be in one that has no captured table now.
        "schema.history.internal.store.only.captured.databases.ddl": "false",
        # A statement that Debezium cannot read stops no table. `SchemaHistory` finds it, whichever table it is about.
        "schema.history.internal.skip.unparseable.ddl": "true",
        "include.schema.changes": "false",
        "connect.keep.alive.interval.ms": str(_KEEP_ALIVE_MS),
        **value_options.MYSQL,
    }


def schema_history(topics: SideTopics, brokers: str, client: Mapping[str, str]) -> dict[str, str]:
    """Build the options for the schema history of MySQL or MariaDB; `client` are options of Java's Kafka client."""
    prefix = "schema.history.internal"
    return {
        f"{prefix}.kafka.bootstrap.servers": brokers,
        f"{prefix}.kafka.topic": topics.schema_history,
        **{f"{prefix}.{side}.{name}": value for side in ("producer", "consumer") for name, value in client.items()},
    }


def ad_hoc_snapshots(topics: SideTopics, brokers: str, client: Mapping[str, str]) -> dict[str, str]:
    """Build the options for snapshots of single tables while others stream.

    They are requested through Kafka and write nothing to the database.
    """
    return {
        "read.only": "true",
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": topics.signals,
        "signal.kafka.groupId": topics.signals,
        "signal.kafka.bootstrap.servers": brokers,
        "signal.kafka.poll.timeout.ms": str(_SIGNAL_ANSWER_MS),
        "signal.poll.interval.ms": str(_SIGNAL_POLL_MS),
        **{f"signal.consumer.{name}": value for name, value in client.items()},
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": topics.notifications,
        "heartbeat.interval.ms": str(_HEARTBEAT_MS),
    }


def signal_table_of(reader: str) -> str:
    """Return the name of a connector's signal table, `schema.table`.

    `reader` is the name by which the database knows the connector: its replication slot, or its number as a replica. The result
    needs no quotes, because Debezium writes none.
    """
    name = f"of_{reader}"
    if len(name) > _LONGEST_NAME:
        # The checksum keeps apart readers whose names begin alike.
        end = f"_{zlib.crc32(name.encode()):08x}"
        name = name[: _LONGEST_NAME - len(end)] + end
    return f"{SIGNAL_SCHEMA}.{name}"


def seen_ms(text: str) -> int | None:
    """Return the time that a signal table keeps; None: it keeps none, or somebody overwrote it."""
    kept = text.removeprefix(SEEN)
    return int(kept) if text.startswith(SEEN) and kept.isdecimal() else None


def signal_table(topic_prefix: str, table: str) -> dict[str, str]:
    """Build the options, beside `ad_hoc_snapshots`, for a signal table, through which snapshots are requested and marked.

    The connector sends the table's own changes nowhere.
    """
    topic = re.escape(f"{topic_prefix}.{table}")
    kafka = "org.apache.kafka.connect.transforms"
    return {
        "read.only": "false",
        # Kafka serves signals from before the table existed.
        "signal.enabled.channels": "source,kafka",
        _SIGNAL_TABLE: table,
        "incremental.snapshot.watermarking.strategy": "insert_delete",
        "transforms": "marks",
        "transforms.marks.type": f"{kafka}.Filter",
        "transforms.marks.predicate": "isMark",
        "predicates": "isMark",
        "predicates.isMark.type": f"{kafka}.predicates.TopicNameMatches",
        "predicates.isMark.pattern": topic,
    }


def has_signal_table(config: Mapping[str, str]) -> bool:
    """Return whether a connector marks its snapshot of a joining table in a signal table."""
    return _SIGNAL_TABLE in config


def has_failover_slot(config: Mapping[str, str]) -> bool:
    """Return whether a connector creates its slot as one that standbys copy."""
    return config.items() >= FAILOVER_SLOT.items()


def skips_truncates(config: Mapping[str, str]) -> bool:
    """Return whether a connector skips TRUNCATE."""
    return not config.items() >= SENDS_TRUNCATES.items()


def topic_creation(topic_prefix: str, partitions: int) -> dict[str, str]:
    """Build the options for a connector whose topics Connect creates."""
    # BEGIN and END of a transaction have different keys: only one partition keeps them in order.
    return {
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": str(partitions),
        "topic.creation.groups": "transaction",
        "topic.creation.transaction.include": rf"{topic_prefix}\.transaction",
        "topic.creation.transaction.replication.factor": "1",
        "topic.creation.transaction.partitions": "1",
    }


def apicurio_avro(url: str, username: str | None = None, password: str | None = None) -> dict[str, str]:
    """Build the options for Avro in Confluent's wire format by Apicurio's converter; `url` is of the registry's own API."""
    return _for_key_and_value(
        {
            "": "io.apicurio.registry.utils.converter.AvroConverter",
            ".apicurio.registry.url": url,
            ".apicurio.registry.auto-register": "true",
            ".apicurio.registry.find-latest": "true",
            # Confluent's wire format: a magic byte and a four-byte schema id before the body, not in headers.
            ".apicurio.registry.as-confluent": "true",
            ".apicurio.registry.use-id": "contentId",
            ".apicurio.registry.headers.enabled": "false",
            **({".apicurio.auth.username": username} if username is not None else {}),
            **({".apicurio.auth.password": password} if password is not None else {}),
        }
    )


def confluent_avro(url: str, username: str | None = None, password: str | None = None) -> dict[str, str]:
    """Build the options for Avro by Confluent's converter; `url` is of Confluent's API."""
    login = {
        ".basic.auth.credentials.source": "USER_INFO",
        ".basic.auth.user.info": f"{username}:{password or ''}",
    }
    return _for_key_and_value(
        {
            "": "io.confluent.connect.avro.AvroConverter",
            ".schema.registry.url": url,
            # Otherwise an explicit NULL in a column with a default arrives as the default.
            ".ignore.default.for.nullables": "true",
            **(login if username is not None else {}),
        }
    )


def json() -> dict[str, str]:
    """Build the options for JSON with the schema in each message."""
    return _for_key_and_value(
        {
            "": "org.apache.kafka.connect.json.JsonConverter",
            ".schemas.enable": "true",
            # Otherwise an explicit NULL in a column with a default arrives as the default.
            ".replace.null.with.default": "false",
        }
    )


def _login(login: Login) -> dict[str, str]:
    return {
        "database.hostname": login.host,
        "database.port": str(login.port),
        "database.user": login.user,
        "database.password": login.password,
        **{f"database.{name}": value for name, value in login.connector_tls.items()},
    }


def _for_key_and_value(converter: Mapping[str, str]) -> dict[str, str]:
    return {f"{side}.converter{name}": value for side in ("key", "value") for name, value in converter.items()}
