"""Any text typed as SQL: no text is lost, only readable errors are raised, and definitions survive their own SQL."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehold.definitions import (
    Capture,
    Connection,
    ConnectionType,
    DeclaredColumn,
    Definition,
    Envelope,
    Format,
    FormatType,
    Included,
    Metadata,
    OptionValue,
    Secret,
    Source,
    Table,
)
from lakehold.errors import StatementError
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.render import create_statement
from lakehold.sql.statements import CreateConnection, CreateSource, CreateTable
from lakehold.sql.text.dialect import split
from lakehold.table_layout import IDENTITY, NUMBERED, TIMES, PartitionField, SortField, fields_text
from lakehold.tables.column_names import folded
from tests.fuzz import statements
from tests.fuzz.statements import fault_of, statements_written_down

VOCABULARY = """
CREATE DROP SHOW CONNECTION SOURCE SOURCES TABLE TABLES IF NOT EXISTS TO FROM KAFKA FILES SCHEMA REGISTRY FORMAT AVRO
INCLUDE OFFSET NONE JSON USING TOPIC TOPICS KEY ENVELOPE UPSERT DEBEZIUM WITH SECRET PASSWORD BROKER URL
BUCKETS TRUE = ( ) , ; . < > - 1
1.5 'text' "name" `name` shop a.b INT STRUCT<a: DECIMAL( ARRAY<INT> MAP INSERT INTO SELECT * -- /* */ \\ $ @ : ' é
"""
PIECES = st.sampled_from(VOCABULARY.split())
SOUP = st.lists(PIECES | st.text(max_size=3), max_size=25).map(" ".join)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
LITERALS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
TEXTS = LITERALS.filter(str.strip)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="."), min_size=1, max_size=6)
TABLE_NAMES = NAMES.filter(lambda name: name == name.strip() and not {*"/\\?#`"} & {*name})
STATEMENTS = st.sampled_from(
    ["SELECT ';' -- ;\n, 1", "SHOW TABLES", 'VALUES ("a;\\"b")', "SELECT /* ; /* ; */ */ `;`", "x"]
)


@given(st.lists(STATEMENTS, max_size=6), st.sampled_from([";", " ;\n", ";;", "; -- ;\n", ";/* ; */"]))
def test_statements_are_split_where_they_end(statements: list[str], between: str) -> None:
    assert [s.text for s in split(between.join(statements))] == statements


@given(SOUP)
def test_splitting_loses_no_text(sql: str) -> None:
    try:
        statements = split(sql)
    except StatementError:
        return
    at = 0
    for statement in statements:
        assert sql[statement.start : statement.end_exclusive] == statement.text
        assert split(sql[at : statement.start]) == ()
        at = statement.end_exclusive
    assert split(sql[at:]) == ()


@given(SOUP)
def test_any_text_is_parsed_or_refused_with_its_position(sql: str) -> None:
    try:
        parse_script(sql)
    except StatementError as error:
        refused = error
    else:
        return
    assert refused.message
    assert 0 <= refused.place.start <= len(sql)
    assert "^" in refused.place.excerpt()


def test_a_mistyped_statement_is_refused_with_its_position() -> None:
    assert [fault_of(f"{sql} USAGE") for sql in statements_written_down() if fault_of(f"{sql} USAGE")] == []
    for tried in itertools.islice(statements.tried(random.Random(0)), 4):
        assert tried.faults == ()


@pytest.mark.parametrize(
    "sql",
    [
        "SUBSCRIBE (SELECT /*+ REPARTITION(4) *SNAPSHOT/ /*+ x */ id FROM shop.orders)",
        "SELECT * FROM MAP(shop.orders AS \\ 5) AS OF 9",
        "SUBSCRIBE (SELECT MAP(a, 1, b) FROM shop.orders)",
    ],
)
def test_a_text_that_a_parser_failed_at_is_refused(sql: str) -> None:
    assert fault_of(sql) is None


@pytest.mark.parametrize("depth", [40, 300, 10_000])
@pytest.mark.parametrize(
    ("before", "opened", "inside", "closed"),
    [
        ("SUBSCRIBE ", "(", "SELECT a FROM s.t", ")"),
        ("SUBSCRIBE (SELECT ", "abs(", "a", ")"),
        ("SUBSCRIBE (SELECT a FROM s.t WHERE ", "NOT (", "a", ")"),
        ("SELECT ", "CASE WHEN a THEN ", "1", " END"),
        ("CREATE TABLE s.t (c ", "ARRAY<STRUCT<a: ", "INT", ">>"),
        ("SUBSCRIBE s.t WITHIN TIMESTAMP ORDER BY ", "(", "a", ")"),
        ("", "/* ", "SHOW TABLES", " */"),
    ],
)
def test_deep_nesting_is_parsed_or_refused(before: str, opened: str, inside: str, closed: str, depth: int) -> None:
    assert fault_of(before + opened * depth + inside + closed * depth) is None
    assert fault_of(before + opened * depth) is None


connections = st.one_of(
    st.builds(
        Connection,
        NAMES,
        st.just(ConnectionType.KAFKA),
        st.fixed_dictionaries(
            {"broker": LITERALS.filter(lambda text: "@" not in text)},
            optional={
                "sasl_password": st.builds(Secret, LITERALS),
                "client_id": LITERALS.filter(lambda t: "@" not in t),
            },
        ),
    ),
    st.builds(
        Connection,
        NAMES,
        st.just(ConnectionType.SCHEMA_REGISTRY),
        st.fixed_dictionaries(
            {"url": st.just("http://127.0.0.1:1")}, optional={"password": st.builds(Secret, LITERALS)}
        ),
    ),
)
formats = st.one_of(st.just(Format(FormatType.JSON)), st.builds(Format, st.just(FormatType.AVRO), NAMES))
sources = st.one_of(
    st.builds(Source, NAMES, formats, path=TEXTS),
    st.builds(
        Source,
        NAMES,
        formats,
        connection=NAMES,
        topics=st.lists(TOPICS, min_size=1, max_size=3, unique=True).map(tuple),
        transaction_topic=st.none() | LITERALS,
        options=st.dictionaries(st.sampled_from(["max_records", "max_bytes"]), st.integers(1, 2**31 - 1)),
    ),
)
prefixes = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
publications = st.from_regex(r"""[^A-Z\s,'"\\@]{1,12}""", fullmatch=True).filter(lambda text: "\x00" not in text)


@st.composite
def captured_sources(draw: st.DrawFn) -> Source:
    is_postgres = draw(st.booleans())
    capture = Capture(
        ConnectionType.POSTGRES
        if is_postgres
        else draw(st.sampled_from([ConnectionType.MYSQL, ConnectionType.MARIADB])),
        draw(NAMES),
        draw(NAMES),
        draw(prefixes),
        draw(publications) if is_postgres else None,
        draw(st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True)) if is_postgres else None,
        None if is_postgres else draw(st.integers(1, 2**32 - 1)),
        draw(st.integers(1, 1000)),
    )
    kafka = draw(NAMES)
    return Source(draw(NAMES), draw(formats), kafka, transaction_topic=capture.transaction_topic, capture=capture)


types = st.recursive(
    st.sampled_from(
        ["int", "bigint", "string", "binary", "date", "timestamp", "timestamp_ntz", "decimal(38,18)", "boolean"]
    ),
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda pair: "map<{},{}>".format(*pair)),
        st.tuples(inner, inner).map(lambda pair: "struct<a:{},`b c`:{}>".format(*pair)),
    ),
    max_leaves=5,
)
columns = st.lists(st.builds(DeclaredColumn, NAMES, types), max_size=3, unique_by=lambda c: folded(c.name))


includes = st.lists(
    st.builds(Included, st.sampled_from(Metadata), st.none() | NAMES),
    max_size=4,
    unique_by=lambda each: folded(each.name),
)


partitions = st.lists(
    st.builds(PartitionField, st.sampled_from([IDENTITY, *TIMES]), NAMES)
    | st.builds(PartitionField, st.sampled_from(NUMBERED), NAMES, st.integers(1, 64)),
    min_size=1,
    max_size=3,
    unique_by=lambda each: folded(each.column),
)
orders = st.lists(
    st.builds(SortField, NAMES, st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda each: folded(each.column),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    declared = tuple(draw(columns))
    key = tuple(c.name for c in declared if draw(st.booleans()))
    options: dict[str, OptionValue] = {}
    if draw(st.booleans()):
        options = {"on_error": draw(st.sampled_from(["fail", "record"])), "buckets": draw(st.integers(1, 64))}
    elif draw(st.booleans()):
        options = {"partitioned_by": fields_text(draw(partitions)), "sorted_by": fields_text(draw(orders))}
    upstream = draw(st.none() | st.tuples(TEXTS, TEXTS).map(".".join).filter(_is_qualified))
    of_debezium = [Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT]
    envelope = draw(st.sampled_from(Envelope if upstream is None else of_debezium))
    topic = draw(TEXTS) if upstream is None else ""
    names = draw(TABLE_NAMES), draw(TABLE_NAMES), draw(NAMES)
    listed = {folded(column.name) for column in declared}
    include = tuple(each for each in draw(includes) if folded(each.name) not in listed)
    key = key if envelope.has_keys else ()
    return Table(*names, topic, envelope, declared, key, options, upstream, include)


def _is_qualified(name: str) -> bool:
    schema, _, table = name.partition(".")
    return bool(schema.strip() and table.strip())


@given(st.one_of(connections, sources, captured_sources(), tables()))
def test_a_definition_survives_the_statement_that_shows_it(definition: Definition) -> None:
    (parsed,) = parse_script(create_statement(definition))
    match parsed.statement:
        case CreateConnection(found) | CreateSource(found) | CreateTable(found):
            assert found == definition
        case other:
            raise AssertionError(other)
