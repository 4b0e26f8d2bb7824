"""PyIceberg's access to S3, with fewer requests for small files and more patience than PyArrow's own."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

ATTEMPTS = 6
"""How often a request is sent that S3 answers with 503, like Iceberg's client for Java; PyArrow's three are too few."""


class S3FileIO(PyArrowFileIO):
    """A `PyArrowFileIO` that writes a file of up to 5 MB in one request.

    PyArrow makes three requests, and fails if S3 answers the last of these with 503 once: it repeats what has succeeded then.
    """

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        made = super()._initialize_fs(scheme, netloc)
        if not isinstance(made, S3FileSystem):
            return made
        _, (options,) = made.__reduce__()
        retries = AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
        return S3FileSystem(**{**options, "allow_delayed_open": True, "retry_strategy": retries})
