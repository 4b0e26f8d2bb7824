"""An S3 server over a directory, and lakes in its buckets."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from lakehold import artifacts
from lakehold.servers import HOST, Server, ServerCommand, http
from lakehold.stack.parts.java import java
from tests.spark_connect import free_port

CREDENTIALS = {"s3.access-key-id": "tester", "s3.secret-access-key": "not a secret"}

_ANSWERS_WITHIN_S = 5.0

_numbers = itertools.count()


class S3Server(Server):
    """An S3 server; each bucket is a folder below `storage`."""

    name = "s3proxy"
    artifact_sets = ("s3proxy",)
    up_command = "the test"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._port = free_port()
        self.endpoint = f"http://{HOST}:{self._port}"
        self.storage = self.folder / "storage"

    @property
    def port(self) -> int:
        return self._port

    def prepare(self) -> None:
        self.storage.mkdir(parents=True)
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": CREDENTIALS["s3.access-key-id"],
            "s3proxy.credential": CREDENTIALS["s3.secret-access-key"],
            # Java's client names the algorithm of its checksum when it deletes several files.
            "s3proxy.ignore-unknown-headers": "true",
            "jclouds.provider": "filesystem",
            "jclouds.filesystem.basedir": str(self.storage),
        }
        (self.folder / "s3proxy.conf").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def command(self) -> ServerCommand:
        (jar,) = artifacts.jars("s3proxy")
        options = ("-DLOG_LEVEL=warn", "-jar", str(jar), "--properties", str(self.folder / "s3proxy.conf"))
        return ServerCommand(java(*options, heap_mb=256), self.folder, self.log, environment={})

    def is_healthy(self) -> bool:
        with suppress(httpx.HTTPError):  # another server may have its port, and speak another protocol
            http.get(self.endpoint, _ANSWERS_WITHIN_S)  # it denies what is not signed, which is an answer
            return True
        return False

    def new_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        (self.storage / name).mkdir()

    def new_lake(self, directory: Path, endpoint: str | None = None) -> dict[str, Any]:
        """Return the arguments of `connect` for a lake in a new bucket, with its catalog in `directory`.

        Args:
            directory: A directory of this machine.
            endpoint: The address of a server in front of this one.
        """
        bucket = f"bucket{next(_numbers)}"
        self.new_bucket(bucket)
        return {
            "warehouse": f"s3://{bucket}/lake",
            "catalog_uri": f"sqlite:///{directory}/{bucket}.db",
            "catalog_properties": {"s3.endpoint": endpoint or self.endpoint, **CREDENTIALS},
        }

    def files(self, location: str) -> list[Path]:
        """Return the files below a location."""
        return sorted(path for path in self.folder_of(location).rglob("*") if path.is_file())

    def folder_of(self, location: str) -> Path:
        """Return the folder of this machine that has the files below a location."""
        return self.storage / location.removeprefix("s3://")
