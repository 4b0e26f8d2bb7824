"""Notebooks show results and batches as tables, in which no value is markup."""

from __future__ import annotations

from decimal import Decimal

from lakehold.errors import LakeholdError
from lakehold.ingest.batch_report import Batches, BatchReport
from lakehold.ingest.write.batch_effects import TableReport
from lakehold.sql.result import Result


def test_a_result_is_a_table_in_which_every_text_is_escaped() -> None:
    shown = Result(("id", "<b>"), [(1, "<script>"), (2, None)], ("a & b",))._repr_html_()
    assert shown == (
        "<table><thead><tr><th>id</th><th>&lt;b&gt;</th></tr></thead><tbody>"
        '<tr><td style="text-align:right">1</td><td>&lt;script&gt;</td></tr>'
        '<tr><td style="text-align:right">2</td><td><i>null</i></td></tr>'
        "</tbody></table><p>a &amp; b</p>"
    )


def test_a_long_result_ends_with_the_number_of_its_rows() -> None:
    shown = Result(("total",), [(Decimal(number),) for number in range(1_234)])._repr_html_()
    assert (shown.count("<tr>"), shown.endswith("<p>100 of 1,234 rows</p>")) == (101, True)


def test_a_statement_without_rows_shows_its_notices_alone() -> None:
    assert Result(notices=("done",))._repr_html_() == "<p>done</p>"


def test_batches_are_a_row_for_each_table_and_the_errors_of_stopped_ones() -> None:
    report = BatchReport(
        "shop",
        "main",
        0,
        5,
        (TableReport("shop.orders", 5, inserted=4),),
        {"shop.items": LakeholdError("it <stopped>")},
    )
    shown = Batches([report, report])._repr_html_()
    assert shown.count("<td>shop.orders</td>") == 2
    assert shown.endswith("<p>shop.items: it &lt;stopped&gt;</p>")
