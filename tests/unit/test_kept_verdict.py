"""The verdict of a comparison names some of its keys and the reasons, and stays short."""

from __future__ import annotations

from dataclasses import replace

from lakehold.quality.table_checks import as_hold_check
from lakehold.verify.comparison import Comparison, Difference, Side
from lakehold.verify.kept_verdict import verdict_of

_EQUAL = Comparison(
    full_name="shop.orders",
    upstream="public.orders",
    at_ms=1_000,
    snapshot_id=7,
    rows_in_database=1_234,
    rows_in_lake=1_234,
    key=("id",),
    columns=("id", "note"),
    skipped=(),
    differences=(),
    different=0,
    is_whole=True,
    unresolved=0,
    reasons=(),
)


def test_an_equal_table_passes_and_says_what_was_not_compared() -> None:
    verdict = verdict_of(_EQUAL)
    assert (verdict.success, verdict.suite, verdict.snapshot_id, verdict.at_ms) == (True, "database", 7, 1_000)
    assert verdict.outcomes[0].found == "1,234 equal rows"
    kept = as_hold_check("", verdict)
    assert (kept.is_comparison, kept.success, kept.failures) == (True, True, ())
    busy = verdict_of(replace(_EQUAL, unresolved=2))
    assert busy.outcomes[0].found == "1,234 equal rows; 2 keys changed all the time and were not compared"


def test_a_table_that_differs_names_keys_and_reasons() -> None:
    differences = tuple(Difference((str(key),), Side.VALUES_DIFFER, ("note",)) for key in range(12))
    found = replace(_EQUAL, differences=differences, different=12, reasons=("Somebody changed it.",))
    (failure,) = as_hold_check("", verdict_of(found)).failures
    assert failure.startswith(
        "expect_table_to_equal_its_database: expected the rows of public.orders, found 12 keys that differ: key 0 values "
        "differ: note; key 1 values differ: note; "
    )
    assert failure.endswith(
        "key 9 values differ: note; …. 1,234 rows in the lake, 1,234 in the database. Somebody changed it."
    )
    more = verdict_of(replace(found, differences=differences[:1], different=1, is_whole=False)).outcomes[0].found
    assert more.startswith("at least 1 key that differs: key 0 values differ: note; …. ")


def test_a_long_key_is_cut() -> None:
    wide = replace(_EQUAL, differences=(Difference(("x" * 5_000,), Side.ONLY_IN_LAKE),), different=1)
    assert len(verdict_of(wide).outcomes[0].found) < 400
