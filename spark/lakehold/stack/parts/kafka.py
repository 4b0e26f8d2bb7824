"""Apache Kafka: one node that is broker and controller (KRaft)."""

from __future__ import annotations

import base64
import logging
import socket
import subprocess
import uuid

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lakehold.servers import HOST, ServerCommand
from lakehold.stack.errors import StackError
from lakehold.stack.parts.java import kafka_java
from lakehold.stack.parts.part import Part, write_properties

_HEAP_MB = 320
_FORMAT_HEAP_MB = 64
_CLIENT_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)

_SINGLE_NODE = {
    "node.id": 1,
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 16_777_216,
}


class Kafka(Part):
    """The Kafka broker of the stack."""

    name = "kafka"
    artifact_sets = ("kafka",)

    @property
    def port(self) -> int:
        """Return the port of the broker."""
        return self.ports.kafka

    def all_ports(self) -> tuple[int, ...]:
        """Return the ports of the broker and of the controller."""
        return (self.ports.kafka, self.ports.kafka_controller)

    def prepare(self) -> None:
        """Write the settings for the stack's ports, and format the storage the first time."""
        self.folder.mkdir(exist_ok=True)
        listeners = f"PLAINTEXT://{HOST}:{self.ports.kafka},CONTROLLER://{HOST}:{self.ports.kafka_controller}"
        write_properties(
            self.folder / "kafka.properties",
            {
                **_SINGLE_NODE,
                "listeners": listeners,
                "advertised.listeners": f"PLAINTEXT://{HOST}:{self.ports.kafka}",
                "controller.quorum.voters": f"1@{HOST}:{self.ports.kafka_controller}",
                "log.dirs": self.folder / "data",
            },
        )
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()

    def command(self) -> ServerCommand:
        """Return the command that runs the broker in the foreground."""
        arguments = ["kafka.Kafka", "kafka.properties"]
        return ServerCommand(
            kafka_java(arguments, folder=self.folder, heap_mb=_HEAP_MB), self.folder, self.log, environment={}
        )

    def is_healthy(self) -> bool:
        """Return whether the broker answers a request for its metadata."""
        try:
            # A client that meets a closed port backs off for longer than the broker takes to open it.
            socket.create_connection((HOST, self.port), timeout=_CLIENT_TIMEOUT_S).close()
            client = AdminClient({"bootstrap.servers": self.addresses.kafka}, logger=_log)
            return bool(client.list_topics(timeout=_CLIENT_TIMEOUT_S).brokers)
        except (OSError, KafkaException):
            return False

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # An id may begin with "-", which a word of its own must not.
        arguments = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", "kafka.properties"]
        result = subprocess.run(
            kafka_java(arguments, folder=self.folder, heap_mb=_FORMAT_HEAP_MB),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise StackError("Kafka's storage cannot be formatted", detail=(result.stdout + result.stderr).strip())
