"""On a real stack, statements refuse mistyped names with the cause, and create nothing."""

from __future__ import annotations

import pytest

from lakehold.errors import LakeholdError
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def _refused(shop: Shop, statement: str) -> LakeholdError:
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.sql(statement)
    assert refusal.value.hint
    return refusal.value


def test_mistyped_names_are_refused_with_their_cause(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.upstream("orders")
    execute(shop.database, ["CREATE VIEW seen AS SELECT * FROM orders"])
    addresses, creating = shop.database.addresses, shop.creating("orders")

    missing = _refused(shop, f"{creating} KEY (nope)")
    assert (missing.code, missing.detail) == ("column-missing", "Its columns: id, n, note.")
    assert _refused(shop, f"{creating} KEY (ID)").hint == "Did you mean id?"
    view = _refused(shop, shop.creating("seen"))
    assert (view.code, "is a view" in view.message) == ("upstream-view", True)

    with monkeypatch.context() as changed:
        changed.setenv("LAKEHOLD_SECRET_PG", "another")
        denied = _refused(shop, creating)
    assert denied.code == "database-denied"
    assert denied.detail == f'Password authentication failed for user "{shop.user}".'

    shop.lake.sql("DROP SOURCE shop")
    for number, url in enumerate((addresses.registry, addresses.registry_native)):
        shop.lake.sql(f"CREATE CONNECTION wrong{number} TO CONNECT (URL '{url}')")
        shop.lake.sql(shop.creating_source.replace("CONNECTION connect", f"CONNECTION wrong{number}"))
        assert _refused(shop, creating).code == "connect-missing"
        shop.lake.sql("DROP SOURCE shop")
    assert shop.topics() == set()
    assert (shop.slots(), shop.publications()) == (0, {})
