"""Views and subscriptions with temporary functions and variables: another session, which publishes, does not have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.errors import DefinitionError, LakeholdError
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    made.lake.spark.udf.register("twice", lambda number: 2 * number, "bigint")
    made.lake.sql("DECLARE OR REPLACE VARIABLE wanted BIGINT = 2")
    return made


@pytest.mark.parametrize(
    ("query", "missing"),
    [("SELECT twice(id) AS n FROM shop.t", "`twice`"), ("SELECT id FROM shop.t WHERE id = wanted", "`wanted`")],
)
def test_a_definition_with_what_other_sessions_lack_is_refused(shop: Shop, query: str, missing: str) -> None:
    lake = shop.lake
    assert lake.sql(f"SUBSCRIBE ({query})").rows, "this session can read the query"
    for create in (f"MATERIALIZED VIEW bi.v AS {query}", f"SUBSCRIPTION s INTO bi.s AS SUBSCRIBE ({query})"):
        with pytest.raises(DefinitionError, match="temporary function or variable") as refused:
            lake.sql(f"CREATE {create}")
        assert refused.value.code == "session-only"
        assert missing in refused.value.detail
    assert (
        lake.sql("SHOW MATERIALIZED VIEWS").rows
        == lake.sql("SHOW SUBSCRIPTIONS").rows
        == lake.sql("SHOW HOLDS").rows
        == []
    )


def test_a_view_whose_function_is_gone_does_not_blame_its_columns(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("CREATE MATERIALIZED VIEW bi.v AS SELECT abs(id) AS n FROM shop.t")
    # The function was there when the view was created: its table was not readable then, so nobody could tell.
    entry = lake.definitions.definitions().views["bi.v"]
    view = replace(entry.definition, query="SELECT gone(id) AS n FROM shop.t")
    lake.definitions.change(lambda known: known.with_entries([replace(entry, definition=view)]))
    with pytest.raises(LakeholdError, match="cannot resolve routine `gone`") as stopped:
        lake.publish("bi.v")
    assert stopped.value.code == "UNRESOLVED_ROUTINE"
