"""Tests of queries that are computed from diffs, and of the state of groups when values leave."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lakehold.sql.query.queries import parse_query
from lakehold.sql.text.dialect import split
from lakehold.subscribe.group_state import GroupColumns, GroupState, Inexact, NotKept
from lakehold.subscribe.incremental_plan import (
    AggregateCall,
    Aggregation,
    ColumnName,
    Equality,
    Plan,
    RowQuery,
    TouchedGroups,
    Whole,
)


def plan_of(query: str) -> Plan:
    (statement,) = split(query)
    return parse_query(statement, repeatable=True).plan


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT a, sum(x) FROM s.t GROUP BY A", ("a",)),
        ("SELECT sum(x) AS x, upper(a) AS u FROM s.t GROUP BY 2", ("u",)),
        ("SELECT upper(a) AS u, b, count(DISTINCT x) FROM s.t GROUP BY b, u", ("b", "u")),
        ("SELECT t.a, u.a AS `b c`, sum(x) FROM s.t JOIN s.u USING (k) GROUP BY t.a, u.a", ("a", "b c")),
        ("WITH y AS (SELECT * FROM s.t) SELECT a AS b, b AS a, sum(x) FROM y GROUP BY a, b", ("b", "a")),
        ("SELECT a, sum(x) FROM s.t GROUP BY a, b", ()),
        # Only whole numbers name items of the select list.
        ("SELECT a, sum(x) FROM s.t GROUP BY 1.0", ()),
        ("SELECT 1.0, sum(x) FROM s.t GROUP BY 1e0", ()),
        # GROUP BY may mean the column of the table here, and several values of it have one upper case.
        ("SELECT upper(a) AS a, sum(x) FROM s.t GROUP BY a", ()),
        ("SELECT a AS b, sum(x) FROM s.t GROUP BY b, a", ()),
        ("SELECT a, sum(x) FROM s.t GROUP BY a WITH ROLLUP", ()),
        ("SELECT a, explode(collect_list(x)) AS x FROM s.t GROUP BY a", ()),
        ("SELECT a COLLATE UTF8_LCASE AS a, sum(x) FROM s.t GROUP BY 1", ()),
        ("SELECT *, sum(x) FROM s.t GROUP BY 1", ()),
        ("SELECT upper(a), sum(x) FROM s.t GROUP BY upper(a)", ()),
        ("SELECT sum(x) FROM s.t", ()),
    ],
)
def test_a_query_with_groups_has_their_columns_as_its_key_if_its_text_shows_them(
    query: str, key: tuple[str, ...]
) -> None:
    (statement,) = split(query)
    assert parse_query(statement, repeatable=True).key == key


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT a FROM s.t WHERE b > 1", RowQuery),
        ("SELECT t.a, u.b FROM s.t JOIN s.u ON t.k = u.k LEFT JOIN s.v USING (k)", RowQuery),
        ("SELECT a FROM s.t UNION ALL SELECT b FROM s.u", RowQuery),
        ("SELECT any(b) FROM s.t", Aggregation),
        ("SELECT a, a IS DISTINCT FROM b FROM s.t GROUP BY a, 2", Aggregation),
        ("SELECT DISTINCT a, b FROM s.t", Aggregation),
        ("SELECT a FROM s.t WHERE a LIKE ANY ('a%', 'b%') OR a NOT ILIKE SOME ('c%')", RowQuery),
        ("SELECT a LIKE ANY ('a%'), any(b) FROM s.t WHERE c LIKE ALL ('a%') GROUP BY a", Aggregation),
        ("SELECT a, t.*, count(*) OVER (PARTITION BY a) FROM s.t", TouchedGroups),
        ("SELECT any_value(a) FROM s.t GROUP BY a", TouchedGroups),
        ("SELECT count(DISTINCT b) FROM s.t GROUP BY a", TouchedGroups),
        ("SELECT rank() OVER (PARTITION BY a, b ORDER BY c), max(d) OVER (PARTITION BY a) FROM s.t", TouchedGroups),
        ("SELECT count(DISTINCT b) FROM s.t JOIN s.u USING (k) GROUP BY a", TouchedGroups),
        ("SELECT rank() OVER (PARTITION BY u.a ORDER BY b) FROM s.t JOIN s.u USING (k)", TouchedGroups),
        ("SELECT x.a FROM (SELECT a, k FROM s.t WHERE b > 1) x JOIN (SELECT * FROM s.u) AS y ON x.k = y.k", RowQuery),
        ("WITH x AS (SELECT * FROM s.t), y AS (SELECT a FROM x) SELECT a FROM y UNION ALL SELECT a FROM x", RowQuery),
        ("SELECT a FROM s.u LEFT JOIN (SELECT k, a FROM s.t WHERE a > 1) x ON u.k = x.k", RowQuery),
        (
            "SELECT g, sum(n) FROM (SELECT g, n + 1 AS n FROM s.t UNION ALL SELECT g, n FROM s.u) GROUP BY g",
            Aggregation,
        ),
        ("SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM s.t GROUP BY k) GROUP BY n", Aggregation),
        ("SELECT k FROM (SELECT k, count(*) AS n FROM s.t GROUP BY k) WHERE n > 1", Aggregation),
        ("SELECT * FROM (SELECT *, rank() OVER (PARTITION BY a ORDER BY b) AS n FROM s.t) WHERE n = 1", TouchedGroups),
        ("(SELECT a, count(*) FROM s.t GROUP BY a)", Aggregation),
        ("((SELECT a FROM s.t WHERE (b) > 1))", RowQuery),
        ("(WITH x AS (SELECT * FROM s.t) SELECT a FROM x)", RowQuery),
        ("SELECT a FROM s.t UNION ALL (SELECT b FROM s.u)", RowQuery),
        ("((SELECT a FROM s.t) UNION ALL ((SELECT b FROM s.u)) UNION ALL SELECT b FROM s.v)", RowQuery),
    ],
)
def test_a_query_has_the_plan_that_its_form_allows(query: str, kind: type[Plan]) -> None:
    assert isinstance(plan_of(query), kind)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM s.t WHERE a IN (SELECT b FROM s.u)",
        "SELECT a FROM s.t FULL JOIN s.u ON t.a = u.b",
        "SELECT * FROM s.t UNION ALL SELECT * FROM s.u",
        "SELECT a FROM s.t UNION SELECT a FROM s.u",
        "(SELECT a FROM s.t) UNION (SELECT a FROM s.u)",
        "SELECT a FROM s.t UNION (SELECT a FROM s.u UNION ALL SELECT a FROM s.v)",
        "(SELECT a FROM s.t) UNION ALL (SELECT a FROM s.u ORDER BY a LIMIT 1)",
        "(SELECT a FROM s.t) EXCEPT (SELECT a FROM s.u)",
        "(SELECT a FROM s.t) UNION ALL (SELECT a FROM s.u) ORDER BY a",
        "SELECT a, explode(b) FROM s.t",
        "SELECT `sum`(a) FROM s.t GROUP BY a",
        "SELECT a + b, (a + b) * 2 FROM s.t GROUP BY a + b",
        "SELECT a, count(*) FROM s.t GROUP BY ROLLUP (a)",
        "SELECT sum(b) AS a FROM s.t GROUP BY a HAVING a > 2",
        "SELECT transform(a, x -> x + 1) FROM s.t GROUP BY a",
        "SELECT k, count(*) FROM s.t LEFT JOIN s.u USING (k) GROUP BY u.k, t.k",
        "SELECT max(a) FROM s.t LEFT JOIN s.u USING (k) GROUP BY t.k + 1, u.k + 1 HAVING k + 1 > 2",
        "SELECT to_json(struct(*)) FROM s.t",
        "SELECT a FROM s.t WHERE xxhash64(b, *) > 2",
        "SELECT t.a, struct(u.*) AS b FROM s.t JOIN s.u ON t.k = u.k",
        "SELECT a, max(struct(*)) FROM s.t GROUP BY a",
        "SELECT b FROM (SELECT a, array(*) AS b FROM s.t)",
        "SELECT a, count(b, *) FROM s.t GROUP BY a",
        "SELECT DISTINCT count(DISTINCT b) FROM s.t GROUP BY a",
        "SELECT DISTINCT any_value(b) FROM s.t GROUP BY a, c",
        "SELECT DISTINCT a FROM s.t GROUP BY a, b",
        "SELECT DISTINCT max(a) FROM s.t",
        "SELECT n FROM (SELECT DISTINCT a, count(DISTINCT b) AS n FROM s.t GROUP BY a, c)",
        "SELECT count(*) FROM s.t GROUP BY 1.5",
        "SELECT sum(DISTINCT n) FROM s.t GROUP BY 1e0",
        "SELECT sum(n) OVER (ORDER BY k) FROM s.t",
        "SELECT sum(n) OVER (PARTITION BY struct_column.k) FROM s.t",
        "SELECT a FROM (SELECT a FROM s.t ORDER BY b LIMIT 3)",
        "SELECT a FROM (SELECT a FROM s.t) AS x(b)",
        "SELECT * FROM s.u JOIN (SELECT k, count(*) FROM s.t GROUP BY k) x ON u.k = x.k",
        "SELECT sum(n) OVER (PARTITION BY k) FROM (SELECT k, count(*) AS n FROM s.t GROUP BY k)",
        "SELECT * FROM s.u LEFT JOIN (SELECT k FROM s.t UNION ALL SELECT k FROM s.v) x ON u.k = x.k",
        "SELECT a AS b, count(*) FROM (SELECT a, c AS b FROM s.t) GROUP BY b",
        "WITH x (b) AS (SELECT a FROM s.t) SELECT b FROM x",
        "SELECT a FROM (WITH x AS (SELECT a FROM s.t) SELECT a FROM x)",
        "SELECT a FROM (SELECT a FROM s.t WHERE a IN (SELECT b FROM s.u))",
    ],
)
def test_a_query_that_is_not_known_to_be_safe_is_computed_whole(query: str) -> None:
    found = plan_of(query)
    # A key that aggregates is found out when the query is opened: its rows would be grouped twice.
    assert isinstance(found, Whole) or (isinstance(found, Aggregation) and isinstance(found.rows.plan, Aggregation)), (
        found
    )


def test_columns_of_two_tables_with_the_same_name_are_different_keys() -> None:
    found = plan_of("SELECT d.k, t.k, count(*) FROM s.t JOIN s.d ON t.x = d.x GROUP BY t.k, d.k")
    assert isinstance(found, Aggregation)
    assert found.items == ("k1", "k0", "g0")
    assert found.rows.text == "SELECT t.k AS k0, d.k AS k1 FROM s.t JOIN s.d ON t.x = d.x"


def test_a_key_that_is_written_the_same_comes_before_keys_that_are_similar() -> None:
    found = plan_of("SELECT k, u.k, count(*) FROM s.t LEFT JOIN s.u USING (k) GROUP BY u.k, k")
    assert isinstance(found, Aggregation)
    assert found.items == ("k1", "k0", "g0")


def test_text_keeps_its_case_when_expressions_are_compared() -> None:
    found = plan_of(
        r"SELECT count_if(c RLIKE r'\d') AS a, count_if(c RLIKE r'\D'), count_if(C rlike r'\d') AS d FROM s.t"
    )
    assert isinstance(found, Aggregation)
    assert found.items == ("g0", "g1", "g0")
    found = plan_of("""SELECT C = R"a", max(c) FROM s.t GROUP BY c = R"A", c = R"a" """)
    assert isinstance(found, Aggregation)
    assert found.items[0] == "k1"


def test_a_part_of_a_union_all_does_not_compare_the_columns_of_another() -> None:
    found = plan_of("SELECT a FROM s.t, s.u WHERE b = c UNION ALL SELECT a FROM s.t, s.u")
    assert isinstance(found, RowQuery)
    assert found.equalities == (Equality(ColumnName(None, "b", 0), ColumnName(None, "c", 0)),)
    assert [source.select for source in found.sources] == [0, 0, 1, 1]


@pytest.mark.parametrize("join", ["LEFT ANTI JOIN", "LEFT SEMI JOIN", "SEMI JOIN", "RIGHT OUTER JOIN", "FULL JOIN"])
def test_the_reason_names_the_join_as_it_is_written(join: str) -> None:
    assert plan_of(f"SELECT a FROM s.t {join} s.u ON t.k = u.k") == Whole(f"it has a {join}")


def test_every_using_of_a_chain_of_joins_compares_columns() -> None:
    found = plan_of("SELECT * FROM s.o LEFT JOIN s.c USING (cid, x) JOIN s.p USING (pid) LEFT JOIN s.q USING (CID)")
    assert isinstance(found, RowQuery)
    assert found.equalities == (
        Equality(ColumnName(0, "cid"), ColumnName(1, "cid"), 0),
        Equality(ColumnName(0, "x"), ColumnName(1, "x"), 0),
        Equality(ColumnName(None, "pid", 0, last=1), ColumnName(2, "pid")),
        Equality(ColumnName(0, "cid"), ColumnName(3, "CID"), 1),
    )


def test_columns_of_subqueries_are_followed_to_their_tables() -> None:
    found = plan_of(
        "WITH x AS (SELECT t.k AS j, t.k + 1 AS i FROM s.t JOIN s.v ON t.v = v.v) "
        "SELECT * FROM (SELECT * FROM x) y JOIN s.u ON y.j = u.a AND y.i = u.b"
    )
    assert isinstance(found, RowQuery)
    assert [source.full_name for source in found.sources] == ["s.t", "s.v", "s.u"]
    assert found.equalities == (
        Equality(ColumnName(0, "v"), ColumnName(1, "v")),
        Equality(ColumnName(0, "k"), ColumnName(2, "a")),
    )


def columns(function: str, of: pa.DataType, result: pa.DataType) -> GroupColumns:
    return GroupColumns((pa.int32(),), (of,), (AggregateCall(function, 0),), (result,))


def test_a_least_value_that_leaves_is_read_again_for_its_group_only() -> None:
    least = columns("min", pa.int32(), pa.int32())
    state = GroupState(least, {(1,): [2, 5], (2,): [1, 5]}, has_one_group=False)
    _, lost = state.add([(-1, (1,), (5,)), (1, (2,), (7,))])
    assert lost == {(1,)}
    _, lost = state.add([(-1, (2,), (5,)), (1, (2,), (3,))])
    assert not lost
    assert least.results_of(state.groups[2,]) == (3,)


def test_a_group_whose_last_row_leaves_is_gone() -> None:
    state = GroupState(columns("min", pa.int32(), pa.int32()), {(1,): [1, 5]}, has_one_group=False)
    before, lost = state.add([(-1, (1,), (5,))])
    assert before == {(1,): [1, 5]}
    assert not lost
    assert state.groups == {}


def test_sums_that_may_overflow_in_some_order_are_left_to_spark() -> None:
    total = columns("sum", pa.int64(), pa.int64())
    assert total.results_of([2, 2, 0, 2**63 - 1]) == (0,)
    with pytest.raises(Inexact):
        total.results_of([2, 2, 0, 2**63])
    with pytest.raises(Inexact):
        columns("avg", pa.int64(), pa.float64()).results_of([2, 2, 0, 2**53 + 1])


@pytest.mark.parametrize(
    ("total", "count", "expected"), [("1.00", 3, "0.333333"), ("-0.01", 2, "-0.005000"), ("2.00", 3, "0.666667")]
)
def test_averages_of_decimals_are_rounded_half_up(total: str, count: int, expected: str) -> None:
    average = columns("avg", pa.decimal128(10, 2), pa.decimal128(14, 6))
    assert average.results_of([count, count, Decimal(total)]) == (Decimal(expected),)


@pytest.mark.parametrize("of", [pa.float64(), pa.decimal128(38, 4), pa.string()])
def test_sums_without_an_exact_state_are_refused(of: pa.DataType) -> None:
    with pytest.raises(NotKept):
        columns("sum", of, of)


@pytest.mark.parametrize("function", ["count_if", "bool_and", "every", "bool_or", "any", "some"])
def test_aggregates_of_conditions_keep_no_state_of_values_that_spark_casts_first(function: str) -> None:
    columns(function, pa.bool_(), pa.bool_())
    with pytest.raises(NotKept):
        columns(function, pa.string(), pa.bool_())
