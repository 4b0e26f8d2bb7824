"""Reads and writes Iceberg's metadata files as JSON: PyIceberg's models drop unknown fields, and cannot write format version 3.

Each file lists all snapshots of its table. A hold may keep thousands of them, and nearly all were in the file before. So lakehold
keeps the text of the snapshots apart from the other fields, and neither parses nor validates the part that did not change.
"""

from __future__ import annotations

import gzip
import re
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.serializers import Compressor, GzipCompressor
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import SnapshotLogEntry

from lakehold.iceberg.other_types import with_other_types

MetadataJson = Mapping[str, Any]
"""Table metadata in the form of its file (Iceberg spec, "Table Metadata and Snapshots"), with all, some or no snapshots."""

_SNAPSHOTS = b'"snapshots":['
_VERSION = re.compile(r"(\d+)-")
_CODEC = re.compile(r"(\.\w+)?\.metadata\.json$")

_GZIP_LEVEL = 1
"""Level 1 takes a third of the best level's time, for a fifth more bytes: each commit writes the whole file again."""


@dataclass(frozen=True)
class MetadataFile:
    """The content of one metadata file.

    Attributes:
        location: Its location.
        fields: All fields but the snapshots.
        snapshots: The text of the snapshots, without the brackets around them.
        metadata: All of it as PyIceberg's model.
        refs: The model's refs by their content.
        log: The entries of the model's snapshot log by their content.
    """

    location: str
    fields: MetadataJson
    snapshots: bytes
    metadata: TableMetadata
    refs: Mapping[Hashable, SnapshotRef]
    log: Mapping[Hashable, SnapshotLogEntry]

    def followed_by(self, fields: MetadataJson) -> MetadataFile:
        """Return the next file, with the same snapshots and other `fields`; nothing is written yet.

        lakehold itself only moves refs, and changes schema and properties. Spark and PyIceberg add and expire snapshots.
        """
        return _modelled(_next_location(fields, self.location), {**fields, "snapshots": ()}, self.snapshots, self)


def read(io: FileIO, location: str, before: MetadataFile | None = None) -> MetadataFile:
    """Read the metadata in a file, which may be compressed; `before` is an earlier one of the table."""
    with io.new_input(location).open() as file:
        text = file.read()
    if isinstance(Compressor.get_compressor(location), GzipCompressor):
        text = gzip.decompress(text)
    return parsed(location, text, before)


def parsed(location: str, text: bytes, before: MetadataFile | None = None) -> MetadataFile:
    """Return the file at `location`, which has this text; `before` is an earlier one of the table."""
    start = text.find(_SNAPSHOTS) + len(_SNAPSHOTS)
    end = start + len(before.snapshots) if before is not None else start
    # Skip the snapshots of `before` if the list begins with exactly these: then it goes on, or ends.
    if before is None or not before.snapshots or text[start:end] != before.snapshots or text[end] not in b",]":
        fields = orjson.loads(text)
        return _modelled(location, fields, _elements(fields.get("snapshots", ())), None)
    fields = orjson.loads(text[:start] + text[end:].removeprefix(b","))
    added = _elements(fields["snapshots"])
    return _modelled(location, fields, b",".join(filter(None, (before.snapshots, added))), before)


def write(io: FileIO, file: MetadataFile) -> None:
    """Write a new file, compressed if its name says so."""
    text = orjson.dumps({**file.fields, "snapshots": orjson.Fragment(b"[" + file.snapshots + b"]")})
    if isinstance(Compressor.get_compressor(file.location), GzipCompressor):
        text = gzip.compress(text, _GZIP_LEVEL)
    with io.new_output(file.location).create() as stream:
        stream.write(text)


def _elements(snapshots: object) -> bytes:
    return orjson.dumps(snapshots)[1:-1]


def _modelled(location: str, fields: MetadataJson, snapshots: bytes, before: MetadataFile | None) -> MetadataFile:
    """Build the file at `location`, with PyIceberg's model, and reuse the parts of the model of `before` that are equal.

    Args:
        location: The file's location.
        fields: The parsed fields. Their `snapshots` are only those that `before` does not have.
        snapshots: The text of all snapshots.
        before: An earlier file of the table; None if all is new.
    """
    refs = {name: tuple(ref.items()) for name, ref in (fields.get("refs") or {}).items()}
    log = [tuple(entry.items()) for entry in fields.get("snapshot-log") or ()]
    known_refs = before.refs if before is not None else {}
    known_log = before.log if before is not None else {}
    metadata = _model(
        {
            **fields,
            "snapshots": [*(before.metadata.snapshots if before is not None else ()), *(fields.get("snapshots") or ())],
            "refs": {name: known_refs.get(key) or dict(key) for name, key in refs.items()},
            "snapshot-log": [known_log.get(key) or dict(key) for key in log],
        }
    )
    return MetadataFile(
        location,
        {name: value for name, value in fields.items() if name != "snapshots"},
        snapshots,
        metadata,
        {key: metadata.refs[name] for name, key in refs.items()},
        dict(zip(log, metadata.snapshot_log, strict=True)),
    )


def _model(fields: dict[str, Any]) -> TableMetadata:
    """Build PyIceberg's model, also of a table with column types that PyIceberg does not know, such as `variant`."""
    try:
        return TableMetadataUtil.parse_obj(fields)
    except ValidationError:
        return TableMetadataUtil.parse_obj(with_other_types(fields))


def _next_location(fields: MetadataJson, location: str) -> str:
    """Return the location of the metadata after the one at `location`: the next version number, the same codec."""
    name = location.rsplit("/", 1)[-1]
    version, codec = _VERSION.match(name), _CODEC.search(name)
    number = int(version[1]) + 1 if version else 0
    suffix = codec[1] or "" if codec else ""
    provider = load_location_provider(fields["location"], fields.get("properties", {}))
    return provider.new_metadata_location(f"{number:05d}-{uuid.uuid4()}{suffix}.metadata.json")
