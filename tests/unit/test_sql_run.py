"""Scripts over definitions: what they change, what they refuse, and that none of it needs Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from lakehold.catalog.definitions import Definitions, DefinitionStore
from lakehold.catalog.memory import MemoryDefinitions
from lakehold.errors import DefinitionError, StatementError
from lakehold.ingest.read.kafka_options import kafka_options
from lakehold.sql.options import KAFKA
from lakehold.sql.run import Runner
from tests.unread import NoReads

SHOP = """
CREATE CONNECTION kafka TO KAFKA (BROKER '127.0.0.1:19092', SECURITY PROTOCOL 'SASL_SSL', SASL PASSWORD SECRET 'KP');
CREATE CONNECTION registry TO SCHEMA REGISTRY (URL 'http://127.0.0.1:18081');
CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('customers', 'orders'))
  FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry;
CREATE TABLE shop.customers FROM SOURCE shop (TOPIC 'customers') ENVELOPE DEBEZIUM;
CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE DEBEZIUM UPSERT;
"""
AGAIN = SHOP.replace("CREATE CONNECTION", "CREATE CONNECTION IF NOT EXISTS")
AGAIN = AGAIN.replace("CREATE SOURCE", "CREATE SOURCE IF NOT EXISTS").replace(
    "CREATE TABLE", "CREATE TABLE IF NOT EXISTS"
)


class RecordedTables:
    """Remembers what was dropped, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def drop_iceberg_table(self, full_name: str) -> None:
        self.done.append(f"drop {full_name}")


def no_spark() -> NoReturn:
    pytest.fail("a statement over definitions started Spark")


def runner(store: DefinitionStore | None = None) -> tuple[Runner, RecordedTables]:
    tables = RecordedTables()
    return Runner(store or MemoryDefinitions(), tables, no_spark, NoReads()), tables


def with_shop() -> tuple[Runner, RecordedTables]:
    made, tables = runner()
    made.run(SHOP)
    return made, tables


def test_a_script_declares_a_source_and_its_tables() -> None:
    lake, _ = with_shop()
    definitions = lake.store.definitions()
    assert definitions.source("shop").topics == ("customers", "orders")
    assert [e.definition.full_name for e in definitions.tables_of("shop")] == ["shop.customers", "shop.orders"]
    assert definitions.table("shop.orders").sql == (
        "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE DEBEZIUM UPSERT"
    )


def test_a_file_can_be_applied_again_and_changes_nothing() -> None:
    lake, _ = with_shop()
    before = lake.store.definitions()
    result = lake.run(AGAIN)
    assert result.notices == ()
    assert lake.store.definitions() == before


def test_a_definition_that_differs_stays_and_the_notice_says_how() -> None:
    lake, _ = with_shop()
    result = lake.run(AGAIN.replace("'customers', 'orders'", "'customers', 'orders', 'items'"))
    assert result.notices == (
        'source "shop" exists and stays as it is: '
        "it has FROM KAFKA CONNECTION kafka (TOPICS ('customers', 'orders')), "
        "the statement says FROM KAFKA CONNECTION kafka (TOPICS ('customers', 'orders', 'items'))",
    )
    assert lake.store.definitions().source("shop").topics == ("customers", "orders")


def test_show_answers_for_the_last_statement() -> None:
    lake, _ = with_shop()
    tables = lake.run("SHOW CONNECTIONS; SHOW TABLES")
    assert tables.columns == ("namespace", "name", "source", "topic", "envelope", "key")
    assert tables.rows == [
        ("shop", "customers", "shop", "customers", "debezium", []),
        ("shop", "orders", "shop", "orders", "debezium-upsert", []),
    ]
    sources = lake.run("SHOW SOURCES")
    assert sources.rows == [("shop", "kafka", None, ["customers", "orders"], "avro", "registry", None)]


def test_show_create_names_secrets_and_can_be_run() -> None:
    lake, _ = with_shop()
    ((name, statement),) = lake.run("SHOW CREATE CONNECTION kafka").rows
    assert name == "kafka"
    assert "SASL PASSWORD SECRET 'KP'" in statement
    other, _ = runner()
    other.run(statement)
    assert other.store.definitions().connection("kafka") == lake.store.definitions().connection("kafka")


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("CREATE SOURCE shop FROM FILES '/x' FORMAT JSON", "source-exists", 'source "shop" already exists'),
        (
            "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT",
            "table-exists",
            'table "shop.orders" already exists',
        ),
        (
            "CREATE TABLE shop.Orders FROM SOURCE SHOP (TOPIC 'orders') ENVELOPE UPSERT",
            "table-exists",
            'table "shop.orders" already exists',
        ),
        (
            "CREATE TABLE shop.items FROM SOURCE shop (TOPIC 'items') ENVELOPE UPSERT",
            "topic-missing",
            "Its topics: customers, orders.",
        ),
        (
            "CREATE TABLE shop.items FROM SOURCE shap (TOPIC 'items') ENVELOPE UPSERT",
            "source-missing",
            'source "shap" does not exist',
        ),
        (
            "CREATE TABLE mz_catalog.items FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT",
            "namespace-reserved",
            'namespace "mz_catalog" is reserved',
        ),
        (
            "CREATE SOURCE s FROM KAFKA CONNECTION registry (TOPIC 't') FORMAT JSON",
            "connection-type",
            "Expected a connection to Kafka, found one to a schema registry.",
        ),
        (
            "DROP CONNECTION kafka",
            "connection-in-use",
            'Used by table "shop.customers", table "shop.orders", source "shop"',
        ),
        ("DROP SOURCE shop", "source-in-use", 'Used by table "shop.customers", table "shop.orders".'),
        ("DROP SOURCE shap", "source-missing", 'Known: "shop".'),
        ("SHOW CREATE SOURCE shap", "source-missing", 'Known: "shop".'),
        ("INSERT INTO shop.orders VALUES (1)", "table-fed", 'table "shop.orders" is fed by source "shop"'),
        ("DELETE FROM lake.shop.orders", "table-fed", "DELETE by hand"),
        ("WITH a AS (SELECT 1) INSERT INTO shop.orders SELECT * FROM a", "table-fed", "INSERT by hand"),
    ],
)
def test_what_contradicts_the_definitions_is_refused_and_changes_nothing(sql: str, code: str, said: str) -> None:
    lake, tables = with_shop()
    before = lake.store.definitions()
    with pytest.raises(DefinitionError) as refused:
        lake.run(sql)
    assert refused.value.code == code
    assert said in str(refused.value)
    assert lake.store.definitions() == before
    assert tables.done == []


def test_dropping_a_table_drops_its_data() -> None:
    lake, tables = with_shop()
    lake.run("DROP TABLE shop.Orders")
    assert tables.done == ["drop shop.orders"]
    assert list(lake.store.definitions().tables) == ["shop.customers"]


def test_cascade_drops_all_that_needs_a_connection() -> None:
    lake, tables = with_shop()
    lake.run("DROP CONNECTION registry CASCADE")
    definitions = lake.store.definitions()
    assert (list(definitions.connections), dict(definitions.sources), dict(definitions.tables)) == (["kafka"], {}, {})
    assert tables.done == [
        "drop shop.customers",
        "drop shop.orders",
    ]


def test_dropping_what_is_not_there_is_told_when_allowed() -> None:
    lake, _ = runner()
    assert lake.run("DROP SOURCE IF EXISTS shop").notices == ('source "shop" does not exist: nothing to drop',)


def test_nothing_runs_when_a_later_statement_is_not_well_formed() -> None:
    lake, _ = runner()
    with pytest.raises(StatementError) as refused:
        lake.run("CREATE SOURCE a FROM FILES '/x' FORMAT JSON;\nCREATE SOURCE b FROM FILES '/x' FORMAT JSN")
    assert refused.value.line == 2
    assert lake.store.definitions() == Definitions()


def test_a_type_nested_without_end_is_refused() -> None:
    nested = f"{'ARRAY<' * 5000}INT{'>' * 5000}"
    with pytest.raises(StatementError, match="types may be nested 50 deep"):
        runner()[0].run(f"CREATE TABLE a.b (c {nested}) FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT")


def test_an_error_in_a_script_names_the_line_and_keeps_what_ran() -> None:
    lake, _ = runner()
    with pytest.raises(DefinitionError, match=r"The statement is on line 2\."):
        lake.run("CREATE SOURCE a FROM FILES '/x' FORMAT JSON;\nDROP CONNECTION nobody;")
    assert list(lake.store.definitions().sources) == ["a"]


class RacingStore(MemoryDefinitions):
    """Another writer commits between a plan and its commit."""

    def __init__(self, meanwhile: str) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def change(self, apply: Callable[[Definitions], Definitions]) -> Definitions:
        meanwhile, self._meanwhile = self._meanwhile, ""
        if meanwhile:
            runner(self)[0].run(meanwhile)
        return super().change(apply)


def test_a_race_is_decided_by_the_definitions_it_commits_to() -> None:
    statement = "CREATE SOURCE a FROM FILES '/x' FORMAT JSON"
    store = RacingStore(statement)
    with pytest.raises(DefinitionError) as refused:
        runner(store)[0].run(statement)
    assert refused.value.code == "source-exists"


def test_a_lost_race_to_create_the_same_is_none_with_if_not_exists() -> None:
    statement = "CREATE SOURCE IF NOT EXISTS a FROM FILES '/x' FORMAT JSON"
    store = RacingStore(statement)
    assert runner(store)[0].run(statement).notices == ()
    assert list(store.definitions().sources) == ["a"]


@pytest.mark.parametrize("name", KAFKA.known)
def test_every_kafka_option_is_known_where_it_is_used(name: str) -> None:
    try:
        kafka_options({"broker": "a:1", name: "x"})
    except DefinitionError as error:
        refused = error.code
    else:
        refused = ""
    assert refused != "option-unknown"
