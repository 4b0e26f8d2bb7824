"""KEY (…) over columns of rows whose message keys are something else: rows are kept apart, and deletes reach no other row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LakeFactory
from tests.connect_converters import avro_body, avro_schema, framed, json_record, struct
from tests.message_cases import DEBEZIUM_UPSERT, UPSERT, Case, ingested, problems
from tests.registry_server import registry_server, subjects

pytestmark = pytest.mark.spark

ORDERS = "(order_id BIGINT, customer_id BIGINT, v STRING)"
BY_REGION = "(region STRING, id BIGINT, v STRING)|KEY (region, id)"
INT, TEXT = {"type": "int64"}, {"type": "string", "optional": True}
ROW = struct("Row", {"order_id": INT, "v": TEXT})


def bare(**content: Any) -> bytes:
    return json.dumps(content).encode()


def order(number: int, customer: int, v: str) -> bytes:
    return bare(order_id=number, customer_id=customer, v=v)


@pytest.mark.parametrize("driver_records", [100, 0], ids=["in the driver", "by Spark"])
def test_rows_identify_themselves_where_message_keys_are_no_records(
    make_lake: LakeFactory, tmp_path: Path, driver_records: int
) -> None:
    of_customer = [(b"42", order(7, 42, "a")), (b"42", order(8, 42, "b")), (b"42", order(7, 42, "c"))]
    of_text = [(b"c42", order(7, 42, "a")), (b"", order(8, 42, "b")), (b"c42", None), (b"{", order(9, 42, "c"))]
    events = [
        (b"42", bare(op="c", after={"order_id": 7, "customer_id": 42, "v": "a"})),
        (b"42", bare(op="c", after={"order_id": 42, "customer_id": 42, "v": "b"})),
        (b"42", bare(op="u", before={"order_id": 7}, after={"order_id": 8, "customer_id": 42, "v": "c"})),
        (b"42", bare(op="c", after={"order_id": 9, "customer_id": 42, "v": "d"})),
        (b"42", bare(op="d", before={"order_id": 9}, after=None)),
        (b"42", None),
    ]
    cases = {
        "customers": Case(f"{ORDERS}|KEY (order_id) {UPSERT}", of_customer, [(7, 42, "c"), (8, 42, "b")]),
        "texts": Case(
            f"{ORDERS}|KEY (order_id) {UPSERT}",
            of_text,
            [(7, 42, "a"), (8, 42, "b")],
            reasons={2: "undecodable-key", 3: "undecodable-key"},
        ),
        "own": Case(
            f"(id BIGINT, v STRING)|KEY (id) {UPSERT}",
            [(b"7", bare(id=7, v="a")), (b"8", bare(id=8, v="b")), (b"9", bare(v="c")), (b"7", None)],
            [(8, "b"), (9, "c")],
        ),
        "regions": Case(
            f"{BY_REGION} {UPSERT}",
            [(b"eu", bare(region="eu", id=1, v="a")), (b"1", bare(region="us", id=1, v="b")), (b"eu", None)],
            [("eu", 1, "a"), ("us", 1, "b")],
            reasons={2: "undecodable-key"},
        ),
        "events": Case(f"{ORDERS}|KEY (order_id) {DEBEZIUM_UPSERT}", events, [(8, 42, "c"), (42, 42, "b")]),
        "schemas": Case(
            f"KEY (order_id) {UPSERT}",
            [(b"c42", json_record(ROW, {"order_id": n, "v": "a"})) for n in (7, 8)],
            [(7, "a"), (8, "a")],
        ),
    }
    lake = make_lake(driver_read_max_records=driver_records)
    found = problems(lake, ingested(lake, tmp_path / "topics", cases), cases)
    # An update that changes the key counts twice: it also removes the row that had the key before.
    assert found == ["events: 7 messages, 0 errors"]


@pytest.mark.parametrize("driver_records", [100, 0], ids=["in the driver", "by Spark"])
def test_keys_of_other_serializers_do_not_disturb_avro_rows(
    make_lake: LakeFactory, tmp_path: Path, driver_records: int
) -> None:
    def row(number: int) -> bytes:
        return framed(1, avro_body(avro_schema(ROW), {"order_id": number, "v": "a"}))

    long = (42).to_bytes(8, "big")
    messages = [(b"c42", row(7)), (long, row(8)), (b"", row(9)), (b"c42", None)]
    cases = {
        "named": Case(
            f"KEY (order_id) {UPSERT}", messages, [(7, "a"), (8, "a"), (9, "a")], reasons={3: "undecodable-key"}
        ),
        "by_message": Case(
            UPSERT,
            messages,
            reasons={0: "undecodable-key", 1: "unknown-schema", 2: "undecodable-key", 3: "undecodable-key"},
        ),
    }
    of_topics = {f"{name}-value": {1: json.dumps(avro_schema(ROW))} for name in cases}
    with registry_server(subjects(of_topics)) as registry:
        lake = make_lake(driver_read_max_records=driver_records)
        lake.sql(f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry.url}')")
        report = ingested(lake, tmp_path / "topics", cases, "AVRO USING SCHEMA REGISTRY CONNECTION registry")
        assert problems(lake, report, cases) == []


@pytest.mark.parametrize("driver_records", [100, 0], ids=["in the driver", "by Spark"])
def test_a_null_value_whose_key_identifies_no_row_is_an_error(
    make_lake: LakeFactory, tmp_path: Path, driver_records: int
) -> None:
    of_customer, customer = bare(customer_id=42), struct("Key", {"customer_id": INT})
    with_schema = json_record(customer, {"customer_id": 42})
    cases = {
        "bare": Case(
            f"{ORDERS}|KEY (order_id) {UPSERT}",
            [(of_customer, order(7, 42, "a")), (of_customer, None), (None, None)],
            [(7, 42, "a")],
            reasons={1: "null-key"},
        ),
        "parts": Case(
            f"{BY_REGION} {UPSERT}",
            [
                (bare(id=5), bare(region="eu", id=5, v="a")),
                (bare(id=6), bare(region=None, id=6, v="b")),
                (bare(id=7), bare(region=None, id=7, v="c")),
                (bare(id=6), None),
                (bare(region=None, id=7), None),
            ],
            [("eu", 5, "a"), (None, 6, "b")],
            reasons={3: "null-key"},
        ),
        "renamed": Case(
            f"(id BIGINT, v STRING)|KEY (id) {UPSERT}",
            [(bare(id=1), bare(v="a")), (bare(user_id=2), bare(v="b")), (bare(user_id=3), bare(v="c"))],
            [(1, "a")],
            reasons={1: "null-key", 2: "null-key"},
        ),
        "flattened": Case(
            f"{ORDERS}|KEY (order_id) ENVELOPE DEBEZIUM FLATTENED",
            [
                (of_customer, bare(order_id=7, customer_id=42, v="a", __deleted="false")),
                (of_customer, bare(order_id=8, customer_id=42, v="b", __deleted="false")),
                (of_customer, bare(order_id=8, customer_id=42, v="b", __deleted="true")),
                (of_customer, None),
            ],
            [(7, 42, "a")],
            reasons={3: "null-key"},
        ),
        "with_schema": Case(
            f"KEY (order_id) {UPSERT}",
            [(with_schema, json_record(ROW, {"order_id": 7, "v": "a"})), (with_schema, None), (None, None)],
            [(7, "a")],
            reasons={1: "null-key"},
        ),
        "plain": Case(
            f"KEY (order_id) {UPSERT}",
            [(b"7", json_record(ROW, {"order_id": 7, "v": "a"})), (b"7", None)],
            [(7, "a")],
            reasons={1: "null-key"},
        ),
    }
    lake = make_lake(driver_read_max_records=driver_records)
    assert problems(lake, ingested(lake, tmp_path / "topics", cases), cases) == []
