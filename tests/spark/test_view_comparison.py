"""`lakehold verify` of a materialized view compares it with its query, as `how-to/verify-a-table.md` says."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest

from lakehold.cli.command_output import OutputFormat, open_output
from lakehold.cli.verify import DIFFERENT, run_verify
from lakehold.errors import NotReadable
from lakehold.orchestration.verifying import verify_tables
from lakehold.overview.gather import gather
from lakehold.overview.table_problems import problems_of
from lakehold.progress import NoProgress
from lakehold.verify.comparison import Side
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"), (3, "b"))
    made.lake.sql("""
        CREATE MATERIALIZED VIEW bi.counts KEY (v) AS SELECT v, count(*) AS n, sum(id) AS ids FROM shop.t GROUP BY v;
        CREATE MATERIALIZED VIEW bi.values AS SELECT v FROM shop.t;
    """)
    return made


def test_rows_of_a_view_that_were_changed_by_hand_are_found_and_shown(shop: Shop) -> None:
    lake, at = shop.lake, f"`{shop.lake.settings.catalog_name}`.bi"
    with pytest.raises(NotReadable, match="not readable yet"):
        lake.verify("bi.counts")
    for view in ("bi.counts", "bi.values"):
        lake.publish(view)
    shop.write((4, "c"), (3, None))  # not in the views yet: they are compared at the time that they show
    for view, rows in (("bi.counts", 2), ("bi.values", 3)):
        found = lake.verify(view)
        assert found.is_equal
        assert (found.rows_in_database, found.rows_in_lake) == (rows, rows)
        assert "equals its query" in found.summary
    assert verify_tables(lake, []) == {}
    for statement in (
        f"UPDATE {at}.counts SET n = 7, ids = NULL WHERE v = 'a'",
        f"DELETE FROM {at}.counts WHERE v = 'b'",
        f"INSERT INTO {at}.values VALUES ('b')",
    ):
        lake.spark.sql(statement)
    of_counts, of_values = lake.verify("bi.counts"), lake.verify("bi.values")
    assert [(each.key, each.side, each.columns) for each in of_counts.differences] == [
        (("a",), Side.VALUES_DIFFER, ("n", "ids")),
        (("b",), Side.ONLY_IN_QUERY, ()),
    ]
    assert of_counts.reasons[0].startswith("snapshots of the view that no refresh wrote: 2")
    assert [(each.key, each.side) for each in of_values.differences] == [(("b",), Side.SEVERAL_ROWS)]
    (failure,) = (
        str(text) for label, text in verify_tables(lake, ["bi.values"]).items() if label == "bi.values and its query"
    )
    assert "4 rows in the view, 3 in the query" in failure
    facts = {table.name: table for table in gather(lake).tables}["bi.counts"]
    assert [problem.text[:24] for problem in problems_of(facts)] == ["differs from its query a"]

    data, told = StringIO(), StringIO()
    assert run_verify(lake, ["bi.counts"], open_output(OutputFormat.JSON, data, told), NoProgress()) == DIFFERENT
    assert json.loads(data.getvalue())["differences"][1] == {
        "key": ["b"],
        "difference": "only in the query",
        "columns": [],
    }


def test_a_comparison_of_a_view_keeps_the_page_of_its_suite(shop: Shop) -> None:
    shop.lake.publish("bi.counts")
    page = Path(shop.lake.check("bi.counts").html_path)
    of_suite = page.read_text()
    shop.lake.verify("bi.counts")
    assert page.read_text() == of_suite
    assert {each.name for each in page.parent.iterdir()} == {page.name, f"{page.stem}-query.html"}
