"""Values that Debezium changes: reported where they exist, and refused where the connector would fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamError
from lakehold.upstream.differences.lost_values import lossy_columns, lost_values_hints
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import Found
from lakehold.upstream.found.values import Loss, LossyColumn, LostValues
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.report.hints import fault_hints
from tests.upstream_world import World, target

_DAYS = Loss("in a snapshot old dates come as others", "{0} < DATE '0001-01-01'")
_NAN = Loss("NaN comes as null", "{0} - {0} <> 0", is_null=True)


def _column(name: str, text: str, *, is_nullable: bool = True) -> FoundColumn:
    return FoundColumn(name, text, FoundType(text, text), is_nullable=is_nullable)


_ID = FoundColumn("id", "integer", FoundType("int4", "integer"), is_nullable=False, is_key=True)
_DAY, _FREE = _column("day", "date"), _column("free", "numeric")
_STRICT = _column("Strict", "numeric", is_nullable=False)


def _hints(lost: LostValues) -> list[str]:
    return list(lost_values_hints(["s.t", "s.other"], Found(lost={"s.t": lost})))


def test_only_columns_whose_types_lose_something_are_searched() -> None:
    numbers = FoundColumn("ids", "integer[]", FoundType("int4", "integer"), is_array=True, dimensions=1)
    columns = {"s.plain": (_ID,), "s.t": (_ID, _DAY, _FREE, numbers, _column("took", "interval")), "s.gone": ()}
    found = lossy_columns(["s.plain", "s.t", "s.none"], columns, ConnectionType.POSTGRES)
    assert {table: [each.column.name for each in lossy] for table, lossy in found.items()} == {
        "s.t": ["day", "free", "ids", "took"]
    }
    assert lossy_columns(["s.t"], columns, ConnectionType.MARIADB) == {}


def test_columns_with_lossy_values_are_named_by_kind_of_loss() -> None:
    lossy = (LossyColumn(_DAY, _DAYS), LossyColumn(_FREE, _NAN), LossyColumn(replace(_DAY, name="birth"), _DAYS))
    assert _hints(LostValues(lossy)) == [
        "columns s.t.day (date), s.t.birth (date) hold values that are not sent as they are: "
        "in a snapshot old dates come as others",
        "column s.t.free (numeric) holds values that are not sent as they are: NaN comes as null",
    ]
    assert _hints(LostValues(())) == []


def test_a_table_that_was_not_searched_is_reported_with_the_query() -> None:
    lossy = (LossyColumn(_DAY, _DAYS), LossyColumn(_STRICT, _NAN), LossyColumn(_DAY, _NAN))
    assert _hints(LostValues(lossy, "SELECT 1")) == [
        "table s.t could not be searched: day (date), Strict (numeric) may hold values that are not sent as they are. "
        "At one in Strict, which takes no nulls, the connector fails. This query finds them: SELECT 1"
    ]


def _planned(
    *lossy: LossyColumn, query: str = "", money: str = "$1,234.50", new: tuple[str, ...] = ("a",)
) -> list[str]:
    world = World(frozenset({"public.Odd"}))
    goal = target({"a": "public.Odd"}, new=new)
    world.columns = {"public.Odd": (_ID, _column("price", "money"))}
    found = world.inspect(goal)
    assert found.database is not None
    database = replace(found.database, money=money)
    return list(plan(goal, replace(found, database=database, lost={"public.Odd": LostValues(lossy, query)})).hints)


def test_a_null_in_a_column_without_nulls_is_refused() -> None:
    with pytest.raises(UpstreamError, match=r'column "Strict" of table "public\.Odd" holds values') as refusal:
        _planned(LossyColumn(_DAY, _DAYS), LossyColumn(_STRICT, _NAN))
    assert refusal.value.code == "value-unsendable"
    assert refusal.value.detail.startswith("It is of type numeric and takes no nulls, and NaN comes as null")
    assert refusal.value.hint == (
        'UPDATE public."Odd" SET "Strict" = … WHERE "Strict" - "Strict" <> 0. Or let it take nulls: '
        'ALTER TABLE public."Odd" ALTER COLUMN "Strict" DROP NOT NULL.'
    )
    with pytest.raises(UpstreamError) as refusal:
        _planned(LossyColumn(replace(_STRICT, is_key=True), _NAN))
    assert "DROP NOT NULL" not in refusal.value.hint


def test_values_that_stop_no_connector_are_not_refused() -> None:
    assert any("public.Odd.free" in hint for hint in _planned(LossyColumn(_FREE, _NAN)))
    assert any("connector fails" in hint for hint in _planned(LossyColumn(_STRICT, _NAN), query="SELECT 1"))
    assert _planned() == []


@pytest.mark.parametrize("money", ["1.234,50 €", "1 234,50 €", "kr1.234,50", "CHF 1'234.50", "1,234.50$", "€ 1.234,50"])
def test_money_that_the_connector_cannot_read_is_refused(money: str) -> None:
    with pytest.raises(UpstreamError, match=r'column "price" of table "public\.Odd"') as refusal:
        _planned(money=money)
    assert refusal.value.code == "value-unsendable"
    assert money in refusal.value.detail
    assert refusal.value.hint == "ALTER ROLE u IN DATABASE shop SET lc_monetary = 'C'."
    assert _planned(money=money, new=()) == [], "only a statement that declares the table is refused"


def test_bytes_that_the_connector_reads_as_others_are_refused_or_named() -> None:
    world, goal = World(frozenset({"public.Odd"})), target({"a": "public.Odd"}, new=["a"])
    world.columns = {"public.Odd": (_ID, _column("data", "bytea"))}
    found = world.inspect(goal)
    assert found.database is not None
    escaped = replace(found, database=replace(found.database, bytea_output="escape"))
    with pytest.raises(UpstreamError, match=r'column "data" of table "public\.Odd"') as refusal:
        plan(goal, escaped)
    assert refusal.value.code == "value-unsendable"
    assert refusal.value.hint == "ALTER ROLE u IN DATABASE shop SET bytea_output = 'hex'."
    captured = target({"a": "public.Odd"})
    (hint,) = plan(captured, escaped).hints
    assert [*fault_hints(captured, escaped)] == [hint]
    assert hint.endswith("ALTER ROLE u IN DATABASE shop SET bytea_output = 'hex'; then ALTER SOURCE shop RESNAPSHOT")
    assert plan(captured, found).hints == ()


@pytest.mark.parametrize("money", ["$1,234.50", "£1,234.50", "¥1,235", "₹1,234.500"])
def test_money_with_a_point_is_accepted(money: str) -> None:
    assert _planned(money=money) == []
