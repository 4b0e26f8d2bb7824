"""A standalone Spark cluster on loopback: a master and workers, with the programs that come with PySpark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyspark

from lakehold.servers import HOST, Server, ServerCommand, processes
from lakehold.servers.http import get
from tests.catalog_servers import running
from tests.spark_connect import free_port

EXECUTOR_MEMORY = "1g"
WORKER_CORES = 2

_SPARK = Path(pyspark.__file__).parent
_ANSWERS_WITHIN_S = 5.0


class _Daemon(Server):
    """A process of the cluster, with a web page on a port of its own."""

    up_command = "the test"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._port, self.web_port = free_port(), free_port()

    @property
    def port(self) -> int:
        return self._port

    def prepare(self) -> None:
        self.folder.mkdir()

    def _command(self, of: str, *arguments: str) -> ServerCommand:
        listening = ("--host", HOST, "--port", str(self._port), "--webui-port", str(self.web_port))
        # `spark-class` becomes the Java process itself.
        argv = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{of}", *listening, *arguments]
        environment = {"SPARK_HOME": str(_SPARK), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": HOST}
        return ServerCommand(argv, self.folder, self.log, environment)

    def page(self) -> dict[str, Any]:
        """Return what the web page shows.

        Raises:
            httpx.HTTPError: There is no answer.
        """
        shown: dict[str, Any] = get(f"http://{HOST}:{self.web_port}/json/", _ANSWERS_WITHIN_S).json()
        return shown

    def is_healthy(self) -> bool:
        try:
            return bool(self.page())
        except (httpx.HTTPError, ValueError):
            return False


class Master(_Daemon):
    name = "master"

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def command(self) -> ServerCommand:
        return self._command("master.Master")

    def workers(self) -> int:
        """Return how many workers are there."""
        return int(self.page()["aliveworkers"])


class Worker(_Daemon):
    """A worker with memory for one executor; it counts as started when the master knows it."""

    def __init__(self, directory: Path, number: int, master: Master) -> None:
        self.name = f"worker{number}"  # type: ignore[misc]  # several of a class
        super().__init__(directory)
        self._master = master

    def command(self) -> ServerCommand:
        limits = ("--cores", str(WORKER_CORES), "--memory", EXECUTOR_MEMORY, "--work-dir", str(self.folder))
        return self._command("worker.Worker", *limits, self._master.url)

    def is_healthy(self) -> bool:
        try:
            known = {worker["port"] for worker in self._master.page()["workers"] if worker["state"] == "ALIVE"}
        except (httpx.HTTPError, ValueError):
            return False
        return self.port in known

    def executors(self) -> dict[str, psutil.Process]:
        """Return the executors that run here, by their id in the application."""
        process = processes.recorded(self.pid_file)
        children = process.children(recursive=True) if process else []
        found = {}
        for child in children:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                words = child.cmdline()
                if "--executor-id" in words:
                    found[words[words.index("--executor-id") + 1]] = child
        return found

    def kill(self) -> None:
        """Kill the worker and its executors with SIGKILL, as if its machine lost power."""
        process = processes.recorded(self.pid_file)
        assert process is not None
        for victim in (process, *self.executors().values()):
            victim.kill()


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    master: Master
    workers: tuple[Worker, ...]

    def spark_conf(self, ui_port: int) -> dict[str, str]:
        """Return the settings of a driver on this cluster, which listens on loopback only."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.ui.enabled": "true",
            "spark.ui.port": str(ui_port),
        }


@contextmanager
def running_cluster(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster until the block ends."""
    with ExitStack() as started:
        master = started.enter_context(running(Master(directory)))
        numbered = [Worker(directory, number, master) for number in range(1, workers + 1)]
        yield Cluster(master, tuple(started.enter_context(running(worker)) for worker in numbered))


@dataclass(frozen=True)
class DriverPage:
    """The REST interface of a running driver's web page."""

    port: int

    def merging_executors(self, table: str) -> set[str]:
        """Return the ids of the executors that run tasks of a MERGE into a table now, in a stage of several tasks."""
        found = set()
        for stage in self._get("stages?status=active"):
            if "MERGE INTO" in stage["details"] and f"`{table}`" in stage["details"] and stage["numTasks"] > 1:
                tasks = self._get(f"stages/{stage['stageId']}/{stage['attemptId']}/taskList?status=running")
                found |= {task["executorId"] for task in tasks}
        return found

    def failed_tasks(self) -> int:
        """Return how many tasks have failed since the driver started."""
        return sum(stage["numFailedTasks"] for stage in self._get("stages"))

    def _get(self, path: str) -> list[dict[str, Any]]:
        """Return an answer; nothing while the driver does not run, or does not know what it is asked."""
        base = f"http://{HOST}:{self.port}/api/v1/applications"
        try:
            (application,) = get(base, _ANSWERS_WITHIN_S).json()
            answer = get(f"{base}/{application['id']}/{path}", _ANSWERS_WITHIN_S)
            found: list[dict[str, Any]] = answer.json() if answer.status_code == httpx.codes.OK else []
        except (httpx.HTTPError, ValueError):
            return []
        return found
