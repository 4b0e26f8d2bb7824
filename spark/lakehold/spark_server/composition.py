"""The composition of the server: a directory, a port, and Spark's configuration. Nothing here starts or stops anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # comes with pyspark[connect], without types
import pyspark

from lakehold.executor_python import interpreter
from lakehold.iceberg.properties import spark_catalog_conf
from lakehold.servers import HOST, Server, ServerCommand
from lakehold.session import session_conf
from lakehold.settings import Settings

SESSION_TIMEOUT = "1h"
"""How long the server keeps the session of a silent client; lakehold's clients report every minute."""

_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_OUT_OF_MEMORY = "-XX:+ExitOnOutOfMemoryError"
"""Ends a server whose heap is full, with a line in its log: some of its threads would be gone, and its clients would wait."""

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ANY_METHOD = "/spark.connect.SparkConnectService/ReleaseSession"
_ANSWERS_WITHIN_S = 5.0
_SILENT = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED}


def server_conf(settings: Settings, port: int) -> dict[str, str]:
    """Build the configuration of a server that knows no lake: the session of each client brings its own catalog.

    Options for a catalog in `LAKEHOLD_SPARK_CONF` stay: they hold for every lake of that catalog's name.
    """
    conf = session_conf(settings)
    of_this_lake = spark_catalog_conf(settings).keys() - settings.spark_conf.keys()
    return {
        "spark.app.name": "lakehold",
        "spark.master": settings.spark_master,
        "spark.connect.session.manager.defaultSessionTimeout": SESSION_TIMEOUT,
        **{name: value for name, value in conf.items() if name not in of_this_lake},
        # The user's own options come last: of two that contradict each other, Java takes the last.
        _DRIVER_OPTIONS: f"{_OUT_OF_MEMORY} {conf[_DRIVER_OPTIONS]}",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
    }


class SparkConnectServer(Server):
    """The Spark Connect server of this machine.

    Args:
        directory: The server's directory.
        port: The port to listen on.
        conf: Spark's configuration; needed only to start the server.
    """

    name = "spark"
    up_command = "lakehold spark up"
    other_port_option = "--port 15003"

    def __init__(self, directory: Path, port: int, conf: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._port = port
        self._conf = conf or {}

    @property
    def port(self) -> int:
        """Return the port of Spark Connect."""
        return self._port

    @property
    def remote(self) -> str:
        """Return the address for clients: the value of the setting `spark_remote`."""
        return f"sc://{HOST}:{self._port}"

    def prepare(self) -> None:
        """Write the server's configuration to a file that only its owner reads, because it may hold passwords.

        The last log is kept under another name, so that the end of a log is about the server that began it.
        """
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous.log"))
        self.folder.mkdir(exist_ok=True)
        path = self._conf_file
        path.touch(mode=0o600)
        path.write_text("".join(f"{name} {_escaped(value)}\n" for name, value in sorted(self._conf.items())))

    def command(self) -> ServerCommand:
        """Return the command that runs the server in the foreground; `spark-submit` becomes the Java process itself."""
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        arguments = ("--properties-file", str(self._conf_file), "--class", _CLASS, "spark-internal")
        environment = {"PYSPARK_PYTHON": interpreter(self._conf)}
        return ServerCommand([str(submit), *arguments], self.folder, self.log, environment)

    def is_healthy(self) -> bool:
        """Return whether the service answers an empty call, which it refuses and which leaves no trace."""
        with grpc.insecure_channel(f"{HOST}:{self._port}") as channel:
            try:
                channel.unary_unary(_ANY_METHOD)(b"", timeout=_ANSWERS_WITHIN_S)
            except grpc.RpcError as answer:
                return answer.code() not in _SILENT
        return True

    @property
    def _conf_file(self) -> Path:
        return self.folder / "spark.properties"


def _escaped(value: str) -> str:
    """Escape a value for Java's properties files."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
