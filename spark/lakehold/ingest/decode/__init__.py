"""From the bytes of Kafka messages to typed Spark columns.

schema_ids.py        which schemas a batch was written with ...
registry.py          ... and what they are
schemas.py           all that as plain data
connect_schema.py    one model of a schema, read from Connect's JSON and (avro_schema.py) from Avro
logical.py           what each logical type becomes: temporal.py, decimals.py
types.py, unify.py   columns, and one type for two
parts.py             how a key or a value is parsed, one version for each schema
structures.py        how it becomes columns: convert.py
problems.py          what is wrong with it
decoded.py           all together: `decode`
together.py          ... for readers who want different things
heads.py             ... or what stands around the rows only, and what a transaction topic says
"""

from __future__ import annotations

from lakehold.ingest.decode.decoded import DEFAULT_MAX_RECORD_BYTES, Decoded, Shape, decode
from lakehold.ingest.decode.schema_ids import SchemaIds, schema_ids, schema_ids_of
from lakehold.ingest.decode.schemas import AvroIds, JsonDeclared, JsonHeads, PartSchemas, TopicSchemas
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.decode.unify import TypeConflict

__all__ = [
    "DEFAULT_MAX_RECORD_BYTES",
    "AvroIds",
    "ColumnType",
    "Decoded",
    "JsonDeclared",
    "JsonHeads",
    "PartSchemas",
    "SchemaIds",
    "Shape",
    "TopicSchemas",
    "TypeConflict",
    "decode",
    "schema_ids",
    "schema_ids_of",
]
