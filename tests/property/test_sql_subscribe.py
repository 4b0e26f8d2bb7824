"""SUBSCRIBE with its clauses in any order, and queries whose tables are replaced in the text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakehold.errors import StatementError
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.query.queries import parse_query
from lakehold.sql.statements import ExplainSubscribe, SelectAsOf, Statement, SubscribeTo
from lakehold.sql.text.dialect import split
from lakehold.subscribe.statement import Query, Subscribe

RELATIONS = [
    "shop.orders",
    "TO lake.shop.`Orders`",
    "(SELECT a, b FROM shop.orders o WHERE a > 1)",
    "TO ((SELECT 1 AS up FROM a.b))",
]
MODIFIERS = [
    "WITHIN TIMESTAMP ORDER BY a",
    "WITHIN TIMESTAMP ORDER BY f(a, b) DESC, 1, b NULLS LAST",
    "WITHIN TIMESTAMP ORDER BY version, timestamp",
    "ENVELOPE UPSERT (KEY (a))",
    "envelope debezium (key (a, `b c`))",
]
OPTIONS = ["WITH (SNAPSHOT)", "WITH (RESUME = 't')", "WITH (PROGRESS = true, SNAPSHOT = false)", "with (progress)"]
STARTS = ["AS OF 5", "AS OF '2024-01-02'", "AS OF TIMESTAMP '2024-01-02 03:04:05.678+01:00'"]
ENDS = ["UP TO 9", "UP TO '2024-01-03T00:00:00Z'"]
VOCABULARY = """
SUBSCRIBE TO SELECT FROM WHERE WITH AS OF UP TO WITHIN TIMESTAMP ORDER BY ENVELOPE UPSERT DEBEZIUM KEY SNAPSHOT
PROGRESS true ( ) ( ) , . = * 1 -1 5L '2024-01-02' 'now' DATE a.b shop.orders t `user` user now() rand( LIMIT OFFSET
JOIN ON UNION VERSION NULLS LAST DESC /*+ x */ VALUES TABLE IDENTIFIER( STREAM unix_timestamp( aes_encrypt( [ ] -> ::
RECURSIVE LATERAL VIEW explode( CASE WHEN END |> ALL |>
"""
PIECES = st.sampled_from(VOCABULARY.split())


def parsed(sql: str) -> Subscribe:
    (found,) = parse_script(sql)
    assert isinstance(found.statement, SubscribeTo)
    return found.statement.subscribe


@st.composite
def statements(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw the words up to the relation, and clauses, at most one of a kind."""
    groups = [g for g in (MODIFIERS, OPTIONS, STARTS, ENDS) if draw(st.booleans())]
    return f"SUBSCRIBE {draw(st.sampled_from(RELATIONS))}", [draw(st.sampled_from(group)) for group in groups]


@given(statements(), st.data())
def test_the_order_of_clauses_does_not_matter(statement: tuple[str, list[str]], data: st.DataObject) -> None:
    head, clauses = statement
    assert parsed(" ".join([head, *data.draw(st.permutations(clauses))])) == parsed(" ".join([head, *clauses]))


@given(statements())
def test_explain_parses_the_statement_unchanged(statement: tuple[str, list[str]]) -> None:
    sql = " ".join([statement[0], *statement[1]])
    (found,) = parse_script(f"EXPLAIN {sql}")
    assert found.statement == ExplainSubscribe(parsed(sql))


SELECTS = [
    "SELECT * FROM {}",
    "SELECT o.id, 1 FROM {} o JOIN {} AS p USING (id) WHERE id IN (SELECT id FROM {})",
    "WITH t AS (SELECT a FROM {}), u AS (SELECT * FROM t, {}) SELECT * FROM t UNION SELECT * FROM u UNION SELECT * FROM {}",
    "SELECT count(*) AS n, (SELECT max(id) FROM {}) FROM ({}) GROUP BY ALL",
]
PARTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters=".`"), min_size=1, max_size=5
)
TABLES = st.sampled_from(["shop.orders", "shop.lines", "`a b`.c", "x.`Y`"]) | st.tuples(PARTS, PARTS).map(
    lambda pair: "`{}`.`{}`".format(*pair)
)


def query(text: str) -> Query:
    (written,) = split(text)
    return parse_query(written, repeatable=True)


@given(st.sampled_from(SELECTS), st.lists(TABLES, min_size=5, max_size=5))
def test_every_table_reference_is_found_and_replaced(select: str, tables: list[str]) -> None:
    found = query(select.format(*tables))
    names = [table.replace("`", "") for table in tables[: select.count("{}")]]
    assert [table.full_name for table in found.tables] == names
    assert found.over({name: f"<{name}>" for name in names}) == select.format(*(f"<{name}>" for name in names))
    own_names = {t.full_name: found.text[t.start : t.end_exclusive] for t in found.tables}
    assert found.over(own_names) == found.text


@given(st.sampled_from(["", " ALL", " /*+ x */"]), st.sampled_from([" a", "*", " a AS b, upper(c)"]), TABLES)
def test_columns_come_first_in_the_select_list(quantifier: str, columns: str, table: str) -> None:
    found = query(f"SELECT{quantifier}{columns} FROM {table}")
    (name,) = (t.full_name for t in found.tables)
    assert found.over({name: "v"}, columns=" mz_diff, ") == f"SELECT{quantifier} mz_diff, {columns} FROM v"


@given(
    st.sampled_from(["SUBSCRIBE ", "SUBSCRIBE (SELECT ", "SUBSCRIBE (FROM a.b |> ", "SELECT ", "WITH t AS "]),
    st.lists(PIECES, max_size=20),
)
def test_any_text_is_parsed_or_refused_with_a_position(head: str, pieces: list[str]) -> None:
    sql = head + " ".join(pieces)
    try:
        statements = [p.statement for p in parse_script(sql)]
    except StatementError as error:
        refused = error
    else:
        assert all(is_in_order(statement, sql) for statement in statements)
        return
    assert refused.message
    assert 0 <= refused.place.start <= len(sql)


def is_in_order(statement: Statement, sql: str) -> bool:
    """Return whether the tables of the statement's query, if it has one, are in the order of its text."""
    match statement:
        case SubscribeTo(Subscribe(relation=Query() as found)) | SelectAsOf(found):
            ends = [0, *(table.end_exclusive for table in found.tables)]
            return found.text in sql and all(e <= t.start for e, t in zip(ends, found.tables, strict=False))
        case _:
            return True
