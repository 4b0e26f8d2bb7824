"""Files of a lake are read alike on this machine and in an object store, whole or in parts, also while it is busy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO, load_file_io

from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.subscribe.fetching import opened
from tests import faulty_s3
from tests.catalog_servers import NewLake
from tests.s3_server import S3Server

MIB = 1 << 20
SIZES_BYTES = (0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB)
KINDS = ["sqlite", pytest.param("s3", marks=pytest.mark.stack)]


@contextmanager
def files_of(place: dict[str, Any]) -> Iterator[tuple[FileIO, str]]:
    """Yield the access to the files of a new lake, and its warehouse."""
    settings = load_settings(**place)
    with closing(open_catalog(settings)) as catalog:
        yield load_file_io(catalog.properties, settings.warehouse), settings.warehouse


def write(io: FileIO, location: str, content: bytes) -> None:
    with io.new_output(location).create() as file:
        file.write(content)


def content_of(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size_bytes", SIZES_BYTES)
def test_a_file_of_any_size_is_read_whole_and_in_parts(new_lake: NewLake, kind: str, size_bytes: int) -> None:
    content, middle = content_of(size_bytes), size_bytes // 2
    with files_of(new_lake(kind)) as (io, warehouse):
        location = f"{warehouse}/file"
        write(io, location, content)
        with io.new_input(location).open() as stream:
            assert stream.read() == content
        with opened(io, location) as stream:
            stream.seek(middle)
            assert stream.read(10) == content[middle:][:10]
            assert stream.tell() == min(size_bytes, middle + 10)
            stream.seek(0)
            assert stream.read() == content


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_not_found_and_may_come_later(new_lake: NewLake, kind: str) -> None:
    with files_of(new_lake(kind)) as (io, warehouse):
        location = f"{warehouse}/file"
        with pytest.raises(FileNotFoundError):
            opened(io, location)
        write(io, location, b"it came")
        with io.new_input(location).open() as stream:
            assert stream.read() == b"it came"


@pytest.mark.stack
def test_a_busy_store_answers_in_the_end_and_one_that_denies_a_file_is_an_error(
    s3_server: S3Server, tmp_path: Path
) -> None:
    with (
        faulty_s3.in_front_of(s3_server.endpoint) as store,
        files_of(s3_server.new_lake(tmp_path, store.endpoint)) as (io, warehouse),
    ):
        location = f"{warehouse}/file"
        write(io, location, content_of(MIB))
        store.failing = 0.3
        for _ in range(10):
            with io.new_input(location).open() as stream:
                assert stream.read() == content_of(MIB)
        assert store.statuses[503] > 0
        store.failing, store.denied = 0.0, "file"
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            io.new_input(location).open()
