"""A second worker of Kafka Connect beside the stack's, whose connectors write without Kafka transactions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lakehold.stack import StackAddresses, StackPorts
from lakehold.stack.parts.connect import Connect
from tests.spark_connect import free_port
from tests.waiting import wait_for

_GROUP = "plain"


@contextmanager
def worker_without_transactions(stack: StackAddresses, directory: Path) -> Iterator[StackAddresses]:
    """Run this worker until the block ends; yields the stack's addresses with this worker in place of its own."""
    ports = StackPorts(kafka=int(stack.kafka.rpartition(":")[2]), connect=free_port())
    worker = Connect(directory, ports)
    worker.prepare()
    settings = worker.folder / "connect.properties"
    text = settings.read_text().replace("exactly.once.source.support=enabled", "exactly.once.source.support=disabled")
    # The second worker needs its own group and topics.
    settings.write_text(re.sub(r"(?m)^(group\.id|\w+\.storage\.topic)=(.*)$", rf"\1=\2-{_GROUP}", text))
    command = worker.command()
    command.log.parent.mkdir(exist_ok=True)
    with command.log.open("ab") as log:
        process = subprocess.Popen(command.argv, cwd=command.folder, stdout=log, stderr=log)
    try:
        wait_for(worker.is_healthy, "the worker answers")
        yield replace(stack, connect=worker.addresses.connect)
    finally:
        process.terminate()
        process.wait()
