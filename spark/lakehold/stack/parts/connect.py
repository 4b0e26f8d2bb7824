"""Kafka Connect with Debezium's connectors for PostgreSQL and MariaDB, and Apicurio's Avro converter."""

from __future__ import annotations

import shutil
import zipfile

import httpx

from lakehold import artifacts
from lakehold.servers import HOST, ServerCommand, http
from lakehold.stack.parts.java import kafka_java
from lakehold.stack.parts.kafka import Kafka
from lakehold.stack.parts.part import Part, write_properties

_HEAP_MB = 320
_CLIENT_TIMEOUT_S = 5.0

_CONNECTORS = ("debezium-postgres", "debezium-mariadb")
_CONVERTER_SERVICE = "META-INF/services/org.apache.kafka.connect.storage.Converter"
_AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"

_WORKER = {
    "group.id": "lakehold-connect",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": 1,
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": 1,
    "offset.storage.partitions": 1,
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": 1,
    "status.storage.partitions": 1,
    # Scanning every class instead takes 10 to 20 s and twice the memory.
    "plugin.discovery": "service_load",
    "exactly.once.source.support": "enabled",
    # A restarted worker waits for transactions that a killed one left open in the topic of offsets; Kafka's default is a minute.
    "producer.transaction.timeout.ms": 15_000,
    # With one worker there is no other to wait for: a delay only slows a restart.
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 2_000,
}


class Connect(Part):
    """The Kafka Connect worker of the stack."""

    name = "connect"
    needs = (Kafka.name,)
    artifact_sets = ("kafka", *_CONNECTORS, "apicurio-converter")

    @property
    def port(self) -> int:
        """Return the port of the worker's REST interface."""
        return self.ports.connect

    def prepare(self) -> None:
        """Lay out the plugins and write the settings for the stack's ports."""
        self.folder.mkdir(exist_ok=True)
        self._lay_out_plugins()
        write_properties(
            self.folder / "connect.properties",
            {
                **_WORKER,
                "bootstrap.servers": self.addresses.kafka,
                "listeners": self.addresses.connect,
                "rest.advertised.host.name": HOST,
                "plugin.path": self.folder / "plugins",
            },
        )

    def command(self) -> ServerCommand:
        """Return the command that runs the worker in the foreground."""
        # PostgreSQL writes instants in texts, such as those of ranges, in the worker's time zone.
        arguments = ["-Duser.timezone=UTC", "org.apache.kafka.connect.cli.ConnectDistributed", "connect.properties"]
        return ServerCommand(
            kafka_java(arguments, folder=self.folder, heap_mb=_HEAP_MB), self.folder, self.log, environment={}
        )

    def is_healthy(self) -> bool:
        """Return whether the worker lists its connectors."""
        try:
            return http.get(f"{self.addresses.connect}/connectors", _CLIENT_TIMEOUT_S).is_success
        except httpx.HTTPError:
            return False

    def _lay_out_plugins(self) -> None:
        plugins = self.folder / "plugins"
        shutil.rmtree(plugins, ignore_errors=True)
        plugins.mkdir()
        for connector in _CONNECTORS:
            (plugins / connector).symlink_to(artifacts.directory(connector))
        converter = plugins / "apicurio-converter"
        converter.mkdir()
        for jar in artifacts.jars("apicurio-converter"):
            (converter / jar.name).symlink_to(jar)
        # The converter lacks the manifest by which `plugin.discovery=service_load` finds it.
        with zipfile.ZipFile(converter / "converter-service.jar", "w") as jar_file:
            jar_file.writestr(_CONVERTER_SERVICE, f"{_AVRO_CONVERTER}\n")
