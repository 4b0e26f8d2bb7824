"""An Airflow of one machine with the project's DAGs: LocalExecutor, SQLite, no login, and therefore on loopback only.

Not `airflow standalone`: its scheduler and triggerer serve logs on all addresses of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import httpx

from lakehold.servers import HOST, Server, ServerCommand, ServerError, http

_HEALTH_TIMEOUT_S = 5.0
_CLIENT_TIMEOUT_S = 60.0
_DAGS_READ_WITHIN_S = 120.0
_POLL_INTERVAL_S = 0.5
_PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True)
class Installation:
    """The common settings of the servers of one Airflow.

    Args:
        home: Keeps Airflow's database and the logs of tasks.
        port: Port of the UI.
        dags: Directory of DAG files.
        spark_remote: Spark Connect endpoint of the tasks.
        lake: Settings of the lake, as variables of the environment.
    """

    home: Path
    port: int
    dags: Path
    spark_remote: str
    lake: Mapping[str, str]

    @property
    def url(self) -> str:
        """Return the URL of the UI."""
        return f"http://{HOST}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return all environment variables of the Airflow processes: this process's own, without those of another Airflow."""
        spark = urlsplit(self.spark_remote)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__API__BASE_URL": self.url,
            # The demo calls `run_dags` when the sources are defined: earlier runs would fail.
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db",
            # Retry a task whose worker was killed after this time, not after five minutes.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW_CONN_LAKEHOLD_SPARK": f"spark-connect://{spark.hostname}:{spark.port}",
            # Airflow's processes find each other, and java.
            "PATH": f"{_PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            **self.lake,
        }

    def migrate(self) -> None:
        """Create Airflow's database, or upgrade its schema; harmless if it is up to date.

        Raises:
            ServerError: The migration failed.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [str(_PROGRAMS / "airflow"), "db", "migrate"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServerError("Airflow's database cannot be created", detail=done.stderr[-2_000:])

    def health(self) -> Mapping[str, str | None]:
        """Fetch the status of Airflow's servers; empty if Airflow does not answer."""
        with suppress(httpx.HTTPError, ValueError):
            answer = http.get(f"{self.url}/api/v2/monitor/health", _HEALTH_TIMEOUT_S).json()
            return {name: part["status"] for name, part in answer.items()}
        return {}

    def client(self) -> httpx.Client:
        """Return a client of Airflow's REST API, `/api/v2`."""
        token = http.get(f"{self.url}/auth/token", _CLIENT_TIMEOUT_S).raise_for_status().json()
        headers = {"Authorization": f"Bearer {token['access_token']}"}
        return httpx.Client(base_url=f"{self.url}/api/v2", headers=headers, timeout=_CLIENT_TIMEOUT_S)

    def make_pool(self, name: str, slots: int) -> None:
        """Create a pool unless it exists."""
        with self.client() as client:
            body = {"name": name, "slots": slots, "description": "Tasks that write tables of sources"}
            answer = client.post("/pools", json=body)
            if answer.status_code != httpx.codes.CONFLICT:
                answer.raise_for_status()

    def run_dags(self) -> None:
        """Unpause lakehold's DAGs once Airflow has read all files. Each file is expected to have at least one DAG.

        Raises:
            ServerError: Airflow has not read some of them in time.
        """
        files = len([*self.dags.glob("*.py")])
        deadline_s = time.monotonic() + _DAGS_READ_WITHIN_S
        with self.client() as client:
            while client.get("/dags", params={"limit": 1}).raise_for_status().json()["total_entries"] < files:
                if time.monotonic() > deadline_s:
                    raise ServerError("Airflow does not read all DAG files", hint=f"See the errors at {self.url}/dags.")
                time.sleep(_POLL_INTERVAL_S)
            client.patch("/dags", params={"dag_id_pattern": "lakehold_%"}, json={"is_paused": False}).raise_for_status()


class AirflowServer(Server):
    """A server of an Airflow.

    Args:
        directory: Keeps the server's log and process record.
        installation: The settings that it shares with the other servers.
    """

    up_command = "make airflow"
    other_port_option = "PORT=8081"  # In the hint if the port is taken.
    answers_as: ClassVar[str]
    """The server's name in Airflow's report on the health of its servers."""

    def __init__(self, directory: Path, installation: Installation) -> None:
        super().__init__(directory)
        self._installation = installation

    @property
    def port(self) -> int:
        """Return the port of the UI."""
        return self._installation.port

    @abstractmethod
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the command `airflow`."""

    def prepare(self) -> None:
        """Create the server's folder, and those of its log and record."""
        for folder in (self.folder, self.log.parent, self.pid_file.parent):
            folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> ServerCommand:
        """Return the command that runs the server in the foreground, with the processes that it starts."""
        argv = [str(_PROGRAMS / "airflow"), *self.arguments()]
        return ServerCommand(argv, self.folder, self.log, self._installation.environment, inherits=False)

    def is_healthy(self) -> bool:
        """Return whether Airflow reports the server as healthy."""
        return self._installation.health().get(self.answers_as) == "healthy"


class ApiServer(AirflowServer):
    """The server of the UI and of the API, which tasks use as well."""

    name = "airflow"
    # The report does not name the server that answers it: if it answers, only the database can be missing.
    answers_as = "metadatabase"

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the command `airflow`."""
        return ("api-server", "--host", HOST, "--port", str(self.port), "--workers", "1")


class Scheduler(AirflowServer):
    """The scheduler, which also runs the tasks."""

    name = "scheduler"
    answers_as = "scheduler"

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the command `airflow`."""
        return ("scheduler", "--skip-serve-logs")

    def all_ports(self) -> tuple[int, ...]:
        """Return no port: the scheduler listens on none."""
        return ()


class DagProcessor(AirflowServer):
    """The processor, which reads DAG files."""

    name = "dag-processor"
    answers_as = "dag_processor"

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the command `airflow`."""
        return ("dag-processor",)

    def all_ports(self) -> tuple[int, ...]:
        """Return no port: the processor listens on none."""
        return ()


class Triggerer(AirflowServer):
    """The triggerer, which has nothing to do: no task is deferred. Without one, Airflow's home page shows a red sign."""

    name = "triggerer"
    answers_as = "triggerer"

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the command `airflow`."""
        return ("triggerer", "--skip-serve-logs", "--capacity", "1")

    def all_ports(self) -> tuple[int, ...]:
        """Return no port: the triggerer listens on none."""
        return ()


def servers(directory: Path, installation: Installation) -> tuple[AirflowServer, ...]:
    """Return the servers of an Airflow, in the order in which they start: the scheduler last."""
    return tuple(kind(directory, installation) for kind in (ApiServer, DagProcessor, Triggerer, Scheduler))
