"""A registry that refuses schemas stops a connector: lakehold names the way out."""

from __future__ import annotations

import re
import subprocess

import httpx
import pytest

from lakehold.stack import ConnectClient
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.runnable_pages import checked
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

_SHOWN_ADDRESS = "http://registry:8081/config/shop.public.orders-value"

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_a_schema_that_the_registry_refuses_is_named_with_the_way_out(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database, "FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry")
    shop.upstream("orders", rows=3)
    execute(database, ["ALTER TABLE orders ADD c int DEFAULT 1"])
    everywhere = f"{database.addresses.registry}/config"
    _set_level(everywhere, "BACKWARD")
    try:
        notices = shop.lake.sql(shop.creating("orders")).notices
    finally:
        _set_level(everywhere, "NONE")
    (notice,) = (each for each in notices if "compatibility level" in each)
    assert notice.startswith("the schema registry has the compatibility level BACKWARD")
    shop.follow_until_equal("orders")

    subject = f"{database.topic_prefix}.public.orders-value"
    _set_level(f"{everywhere}/{subject}", "BACKWARD")
    # A reader of the new schema cannot read a null of an earlier message.
    execute(database, ["ALTER TABLE orders ALTER c SET NOT NULL, ALTER c DROP DEFAULT"])
    execute(database, ["UPDATE orders SET n = 1 WHERE id = 1"])
    with ConnectClient(database.addresses.connect) as worker:
        wait_for(lambda: worker.status(database.name).is_failed, "the registry refuses the schema")
    (notice,) = status_of(shop.lake).notices
    way_out = re.search(r'PUT (/config/\S+) with \{"compatibility": "(\w+)"\}', notice)
    assert way_out is not None, notice

    assert way_out.groups() == (f"/config/{subject}", "NONE")

    (command,) = checked("docs/reference/types.md", __file__)
    address = f"{everywhere}/{subject}"
    subprocess.run(command.replace(_SHOWN_ADDRESS, address), shell=True, check=True, capture_output=True)
    shop.reopen()
    shop.follow_until_equal("orders")
    shop.close()


def _set_level(url: str, level: str) -> None:
    httpx.put(url, json={"compatibility": level}).raise_for_status()
