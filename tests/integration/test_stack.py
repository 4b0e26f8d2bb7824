"""The stack as its users see it: changes of a real PostgreSQL arrive in a real Kafka, whichever part dies in between."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, DeserializingConsumer, KafkaError, Message, TopicPartition
from confluent_kafka.error import ConsumeError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

from lakehold import stack as lakehold_stack
from lakehold.servers.processes import has_ended
from lakehold.stack import ConnectClient, ConnectorError, ServerError, ServerEvent, StackAddresses
from tests.runnable_pages import checked
from tests.stack_fixtures import SourceDatabase, free_ports, open_directory

pytestmark = pytest.mark.stack

_ARRIVES_WITHIN_S = 180
_PASSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._TRANSPORT}
"""Errors that pass: the connector has not created the topic yet, or the broker is restarting."""

PARTS = ("postgres", "kafka", "registry", "connect")
(_SHOWN,) = checked("docs/operate/stack.md", __file__)
UP, STATUS, DOWN_WITH_DATA = [line.split()[1:] for line in _SHOWN.splitlines()]


class AvroTopic:
    """A Confluent client that reads a topic from its beginning."""

    def __init__(self, addresses: StackAddresses, topic: str) -> None:
        registry = SchemaRegistryClient({"url": addresses.registry})
        self._consumer = DeserializingConsumer(
            {
                "bootstrap.servers": addresses.kafka,
                "group.id": topic,
                "enable.auto.commit": False,
                "log_level": 0,
                "key.deserializer": AvroDeserializer(registry),
                "value.deserializer": AvroDeserializer(registry),
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def next(self) -> tuple[Any, Any]:
        """Return the key and the value of the next message."""
        deadline = time.monotonic() + _ARRIVES_WITHIN_S
        while time.monotonic() < deadline:
            try:
                message = self._consumer.poll(0.5)
            except ConsumeError as error:
                if error.code not in _PASSING:
                    raise
                continue
            if message is not None:
                return message.key(), message.value()
        raise AssertionError(f"nothing arrived within {_ARRIVES_WITHIN_S} s")

    def close(self) -> None:
        """Leave the consumer group."""
        self._consumer.close()


@pytest.fixture
def customers(database: SourceDatabase) -> Iterator[AvroTopic]:
    """Capture a table with one row, Ada; yield a reader of its topic."""
    database.execute(
        "CREATE TABLE customers (id bigint PRIMARY KEY, name text, credit numeric(10, 2))",
        "INSERT INTO customers VALUES (1, 'Ada', 12.50)",
    )
    database.capture("public.customers")
    topic = AvroTopic(database.addresses, database.topic("public.customers"))
    yield topic
    topic.close()


def _consumer(addresses: StackAddresses) -> Consumer:
    return Consumer({"bootstrap.servers": addresses.kafka, "group.id": "json", "auto.offset.reset": "earliest"})


def _next(consumer: Consumer) -> Message:
    deadline = time.monotonic() + _ARRIVES_WITHIN_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            return message
    raise AssertionError(f"nothing arrived within {_ARRIVES_WITHIN_S} s")


def _see_it_run_until_it_fails(connect: ConnectClient, connector: str) -> None:
    """Watch a connector that cannot write, which runs until it has a first message."""
    deadline = time.monotonic() + _ARRIVES_WITHIN_S
    while time.monotonic() < deadline:
        connect.wait_until_running(connector)


def _pids(directory: Path) -> dict[str, int | None]:
    return {part.name: part.pid for part in lakehold_stack.status(directory)}


def test_snapshot_and_changes_are_read_back_with_stock_clients(database: SourceDatabase, customers: AvroTopic) -> None:
    key, snapshot = customers.next()
    assert key == {"id": 1}
    assert (snapshot["op"], snapshot["after"]["name"]) == ("r", "Ada")

    database.execute("UPDATE customers SET name = 'Ada L.' WHERE id = 1", "DELETE FROM customers WHERE id = 1")

    _, update = customers.next()
    assert (update["op"], update["before"]["name"], update["after"]["name"]) == ("u", "Ada", "Ada L.")
    _, delete = customers.next()
    assert (delete["op"], delete["before"]["name"], delete["after"]) == ("d", "Ada L.", None)
    assert update["transaction"]["total_order"] + 1 == delete["transaction"]["total_order"]
    assert customers.next() == ({"id": 1}, None)


@pytest.mark.parametrize("victim", PARTS)
def test_a_killed_part_restarts_with_its_data_and_the_others_are_left_alone(
    stack_directory: Path, stack: StackAddresses, database: SourceDatabase, customers: AvroTopic, victim: str
) -> None:
    customers.next()
    before = _pids(stack_directory)
    process = psutil.Process(before[victim])
    process.kill()
    process.wait()
    killed = {part.name: (part.state, part.healthy) for part in lakehold_stack.status(stack_directory)}
    assert killed[victim] == ("stopped", False)

    events: list[ServerEvent] = []
    assert lakehold_stack.up(stack_directory, on_event=events.append) == stack

    after = _pids(stack_directory)
    assert {part for part in PARTS if after[part] != before[part]} == {victim}
    assert [event.server for event in events if event.state == "starting"] == [victim]
    database.execute("INSERT INTO customers VALUES (2, 'Grace', 0)")
    key, value = customers.next()
    while key != {"id": 2}:  # messages that Connect had not acknowledged when it was killed may arrive twice
        key, value = customers.next()
    assert value["after"]["name"] == "Grace"


def test_a_killed_database_restarts_as_soon_as_its_backends_have_ended(
    stack_directory: Path, stack: StackAddresses, database: SourceDatabase
) -> None:
    server = psutil.Process(_pids(stack_directory)["postgres"])
    backends = server.children()
    for backend in backends:
        backend.suspend()
    server.kill()
    server.wait()

    def resume() -> None:
        for backend in backends:
            backend.resume()

    resuming = Timer(1.0, resume)
    resuming.start()
    try:
        assert lakehold_stack.up(stack_directory) == stack
    finally:
        resuming.join()
    database.execute("CREATE TABLE later (id int)")


def test_a_failed_connector_is_reported_with_the_cause_and_goes_on_when_restarted(database: SourceDatabase) -> None:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    nowhere = dataclasses.replace(database.addresses, registry_native="http://127.0.0.1:1/apis/registry/v2")
    database.capture("public.orders", addresses=nowhere)
    with ConnectClient(database.addresses.connect) as connect:
        with pytest.raises(ConnectorError) as failure:
            _see_it_run_until_it_fails(connect, database.name)
        assert f'connector "{database.name}" failed' in failure.value.message
        assert "Exception" in failure.value.detail

        connect.put(database.name, database.connector_config("public.orders"))
        connect.restart(database.name)

        with closing(AvroTopic(database.addresses, database.topic("public.orders"))) as orders:
            assert orders.next()[0] == {"id": 1}
        connect.wait_until_running(database.name)


def test_versions_of_connectors_are_reported(stack: StackAddresses) -> None:
    with ConnectClient(stack.connect) as connect:
        assert connect.plugin_version("io.debezium.connector.postgresql.PostgresConnector") == "3.7.0.Final"
        assert connect.plugin_version("no.such.Connector") == ""


def test_a_configuration_that_connect_refuses_is_reported_in_its_words(stack: StackAddresses) -> None:
    with ConnectClient(stack.connect) as connect:
        with pytest.raises(ConnectorError) as refusal:
            connect.put("nothing", {"connector.class": "no.such.Connector"})

        assert "no.such.Connector" in refusal.value.detail
        assert "nothing" not in connect.names()


def test_a_part_that_does_not_start_is_named_with_the_end_of_its_log() -> None:
    with open_directory() as name:
        directory = Path(name)
        (directory / "postgres" / "data").mkdir(parents=True)
        try:
            with pytest.raises(ServerError) as failure:
                lakehold_stack.up(directory, free_ports())
        finally:
            lakehold_stack.down(directory, delete_data=True)

    assert failure.value.message == "postgres ended before it was healthy"
    assert "could not access the server configuration file" in failure.value.detail
    assert str(directory / "logs" / "postgres.log") in failure.value.hint


def test_json_values_carry_their_schema_and_the_transaction_topic_has_one_partition(database: SourceDatabase) -> None:
    database.execute("CREATE TABLE notes (id bigint PRIMARY KEY, tag text DEFAULT 'none')")
    database.execute("INSERT INTO notes VALUES (1, NULL)")
    database.capture("public.notes", value_format="json", partitions=3)
    database.execute("UPDATE notes SET tag = 'some'")
    with closing(_consumer(database.addresses)) as consumer:
        topic = database.topic("public.notes")
        consumer.subscribe([topic, f"{database.topic_prefix}.transaction"])
        messages = [_next(consumer) for _ in range(4)]  # the row, BEGIN, its change, END
        partitions = consumer.list_topics(timeout=10).topics

    values = [json.loads(message.value() or b"") for message in messages if message.topic() == topic]
    assert {value["payload"]["op"]: value["payload"]["after"]["tag"] for value in values} == {"r": None, "u": "some"}
    assert values[0]["schema"]["type"] == "struct"
    assert len(partitions[topic].partitions) == 3
    assert len(partitions[f"{database.topic_prefix}.transaction"].partitions) == 1


def test_down_leaves_no_process_and_up_goes_on_with_the_data(
    stack_directory: Path, stack: StackAddresses, database: SourceDatabase, customers: AvroTopic
) -> None:
    customers.next()
    running = [psutil.Process(pid) for pid in _pids(stack_directory).values()]
    family = [member for process in running for member in (process, *process.children(recursive=True))]

    lakehold_stack.down(stack_directory)

    assert all(has_ended(process) for process in family)
    assert {part.state for part in lakehold_stack.status(stack_directory)} == {"stopped"}
    assert lakehold_stack.up(stack_directory) == stack, "the same ports are used again"
    database.execute("INSERT INTO customers VALUES (2, 'Grace', 0)")
    key, value = customers.next()
    assert (key, value["after"]["name"]) == ({"id": 2}, "Grace")


def test_servers_that_an_interrupted_up_started_are_stopped_by_down() -> None:
    with open_directory() as directory:
        lakehold = str(Path(sys.executable).with_name("lakehold"))
        ports, environment = str(free_ports().postgres), {**os.environ, "LAKEHOLD_STACK_DIR": directory}
        up = [lakehold, *UP, "--port-base", ports]
        # Ignored where a shell started the tests in the background, which a process passes on.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with subprocess.Popen(up, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any("kafka" in line and "starting" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            process.stderr.read()
        assert process.returncode != 0

        status = subprocess.run([lakehold, *STATUS], env=environment, stdout=subprocess.PIPE, text=True, check=False)
        assert status.returncode == 1
        assert all(part in status.stdout for part in PARTS)
        subprocess.run([lakehold, *DOWN_WITH_DATA], env=environment, check=True)

        assert [each for each in psutil.process_iter(["cmdline"]) if directory in str(each.info["cmdline"])] == []
        assert [path.name for path in Path(directory).iterdir()] == ["lock"]
