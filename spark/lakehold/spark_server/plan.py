"""What the server consists of: a directory, a port, and Spark's configuration. Nothing here starts or stops anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # comes with pyspark[connect], without types
import pyspark

from lakehold.iceberg.properties import spark_catalog_conf
from lakehold.servers import HOST, Server, ServerCommand
from lakehold.session import session_conf
from lakehold.settings import Settings

SESSION_TIMEOUT = "1h"
"""How long the server keeps the session of a client that it does not hear of; those of lakehold are heard of each minute."""

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ANY_METHOD = "/spark.connect.SparkConnectService/ReleaseSession"
_ANSWERS_WITHIN_S = 5.0
_SILENT = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED}


def server_conf(settings: Settings, port: int) -> dict[str, str]:
    """The configuration of a server that knows no lake: the session of each client brings its own catalog.

    What `LAKEHOLD_SPARK_CONF` says of a catalog stays: it holds for every lake of that catalog's name.
    """
    of_this_lake = spark_catalog_conf(settings).keys() - settings.spark_conf.keys()
    return {
        "spark.app.name": "lakehold",
        "spark.master": settings.spark_master,
        "spark.connect.session.manager.defaultSessionTimeout": SESSION_TIMEOUT,
        **{name: value for name, value in session_conf(settings).items() if name not in of_this_lake},
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
    }


class SparkConnectServer(Server):
    """The server.

    Args:
        directory: Its own.
        port: That it listens on.
        conf: Spark's configuration; needed to start it only.
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
        """The port of Spark Connect."""
        return self._port

    @property
    def remote(self) -> str:
        """What clients connect to: the setting `spark_remote`."""
        return f"sc://{HOST}:{self._port}"

    def prepare(self) -> None:
        """Write its configuration, which may hold passwords: for its owner only, and not on the command line."""
        self.folder.mkdir(exist_ok=True)
        path = self._conf_file
        path.touch(mode=0o600)
        path.write_text("".join(f"{name} {_escaped(value)}\n" for name, value in sorted(self._conf.items())))

    def command(self) -> ServerCommand:
        """The server in the foreground; `spark-submit` becomes the Java process itself."""
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        arguments = ("--properties-file", str(self._conf_file), "--class", _CLASS, "spark-internal")
        environment = {"PYSPARK_PYTHON": sys.executable}
        return ServerCommand([str(submit), *arguments], self.folder, self.log, environment)

    def is_healthy(self) -> bool:
        """Whether the service answers a call: an empty one, which it refuses and which leaves nothing behind."""
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
    """As Java's properties files have it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
