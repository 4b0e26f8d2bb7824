"""PyIceberg's access to object stores, with the patience and the addresses that lakehold needs of PyArrow's clients."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from datetime import timedelta

import pyarrow as pa
from cachetools import LRUCache
from pyarrow import ArrowException
from pyarrow.fs import AwsStandardS3RetryStrategy, AzureFileSystem, FileSystem, GcsFileSystem, S3FileSystem
from pyiceberg.io import ADLS_ACCOUNT_NAME, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import BUFFER_SIZE, ONE_MEGABYTE, PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from lakehold.iceberg.metrics import STORE_REQUESTS
from lakehold.iceberg.object_stores import CONNECTIONS

ATTEMPTS = 6
"""How often a request is sent that S3 answers with 503, like Iceberg's client for Java; PyArrow's three are too few."""

RETRIES_FOR = timedelta(seconds=10)
"""How long a request to Google Cloud Storage is sent again, also without credentials; PyArrow's own limit is 15 minutes."""

_CLIENTS = 8
"""Clients that a process keeps: one for each lake that it works with, and its credentials."""

_OF_CLIENTS = frozenset({"s3", "client", "gcs", "adls", "hdfs", "oss"})
"""First words of the properties that PyIceberg makes a client from; others are a table's own."""


class StoreFile(PyArrowFile):
    """A file in an object store. The names of Iceberg's files are random, so nothing asks whether a new one exists."""

    def open(self, seekable: bool = True) -> InputStream:
        """Read the file."""
        STORE_REQUESTS.labels("read").inc()
        return super().open(seekable)

    def exists(self) -> bool:
        """Return whether the file exists."""
        STORE_REQUESTS.labels("exists").inc()
        found: bool = super().exists()
        return found

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 - the signature is PyIceberg's
        """Write the file."""
        STORE_REQUESTS.labels("write").inc()
        return super().create(overwrite=True)


class StoreFileIO(PyArrowFileIO):
    """A `PyArrowFileIO` whose clients give up after seconds, and which takes the account of Azure from a file's location."""

    def new_output(self, location: str) -> StoreFile:
        """Return a new file."""
        return self._file(location)

    def new_input(self, location: str) -> StoreFile:
        """Return a file to read."""
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        STORE_REQUESTS.labels("delete").inc()
        super().delete(location)

    def _file(self, location: str) -> StoreFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        buffered = int(self.properties.get(BUFFER_SIZE, ONE_MEGABYTE))
        return StoreFile(location, path, self.fs_by_scheme(scheme, netloc), buffered)

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return the scheme, the authority and the path, as PyArrow takes it: `container@account.host` is only a container."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        container, _, _ = netloc.partition("@")
        return scheme, netloc, container + path.removeprefix(netloc) if path.startswith(netloc) else path

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        """Return the client, which all tables of a lake share: a new one has to connect again."""
        of_client = frozenset(item for item in self.properties.items() if item[0].partition(".")[0] in _OF_CLIENTS)
        return _clients.of((scheme, netloc, of_client), lambda: self._made(scheme, netloc))

    def _made(self, scheme: str, netloc: str | None) -> FileSystem:
        container, _, host = (netloc or "").partition("@")
        account = {ADLS_ACCOUNT_NAME: host.partition(".")[0]} if host else {}
        made = PyArrowFileIO({**account, **self.properties}).fs_by_scheme(scheme, netloc)
        if isinstance(made, S3FileSystem):
            return _patient_s3(made)
        if isinstance(made, GcsFileSystem):
            _, (options,) = made.__reduce__()
            return GcsFileSystem(**{**options, "retry_time_limit": RETRIES_FOR})
        if isinstance(made, AzureFileSystem):
            _refuse_without_credentials(made, container)
        return made


class _Clients:
    """The clients that this process has made; threads that need the same one at once make it once."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin without clients, as a process does that was forked: connections of its parent are not its own."""
        self._made: LRUCache[Hashable, FileSystem] = LRUCache(_CLIENTS)
        self._making = threading.Lock()

    def of(self, key: Hashable, make: Callable[[], FileSystem]) -> FileSystem:
        with self._making:
            client = self._made.get(key)
            if client is None:
                client = self._made[key] = make()
            return client


_clients = _Clients()
os.register_at_fork(after_in_child=_clients.renew)


def _patient_s3(made: S3FileSystem) -> S3FileSystem:
    """Return a client that writes a file of up to 5 MB in one request, and that has `CONNECTIONS`.

    PyArrow makes three requests, and fails if S3 answers the last of these with 503 once: it repeats what has succeeded then.
    """
    _, (options,) = made.__reduce__()
    retries = AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    threads = pa.io_thread_count()
    # A client gets as many connections as Arrow has threads for files when the client is made, but at least 25.
    pa.set_io_thread_count(max(threads, CONNECTIONS))
    try:
        return S3FileSystem(**{**options, "allow_delayed_open": True, "retry_strategy": retries})
    finally:
        pa.set_io_thread_count(threads)


def _refuse_without_credentials(store: AzureFileSystem, container: str) -> None:
    """Raise an error if the store takes no request: without credentials, PyArrow would end the process at the first read.

    Raises:
        OSError: There are no credentials, or Azure does not answer.
    """
    try:
        store.get_file_info(f"{container}/any")  # a request for the container alone would end the process, too
    except ArrowException as error:
        raise OSError(str(error)) from error
