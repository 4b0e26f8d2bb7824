"""The lake's types of schemas, from `types/*.txt`."""

from __future__ import annotations

import json

import pytest

from lakehold.ingest.decode.avro_schema import from_avro_json
from lakehold.ingest.decode.connect_schema import from_connect_json
from lakehold.ingest.decode.types import iceberg_type
from lakehold.tables.column_types import spark_text
from tests.connect_converters import avro_schema
from tests.type_cases import TypeCase, read_cases

CONNECT = read_cases("connect.txt")
AVRO = read_cases("avro.txt")


@pytest.mark.parametrize("case", CONNECT, ids=lambda c: c.name)
def test_a_connect_schema_becomes_a_column(case: TypeCase) -> None:
    schema = from_connect_json(case.schema)
    assert (str(iceberg_type(schema)), spark_text(iceberg_type(schema))) == (case.iceberg, case.spark)


@pytest.mark.parametrize("case", CONNECT, ids=lambda c: c.name)
def test_the_same_schema_as_avro_becomes_the_same_column(case: TypeCase) -> None:
    schema = from_avro_json(json.dumps(avro_schema(case.schema))).schema
    assert (str(iceberg_type(schema)), spark_text(iceberg_type(schema))) == (case.iceberg, case.spark)


@pytest.mark.parametrize("case", AVRO, ids=lambda c: c.name)
def test_an_avro_schema_becomes_a_column(case: TypeCase) -> None:
    schema = from_avro_json(json.dumps(case.schema)).schema
    assert (str(iceberg_type(schema)), spark_text(iceberg_type(schema))) == (case.iceberg, case.spark)
