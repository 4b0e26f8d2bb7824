"""Scripts over definitions, without Spark: changes and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from lakehold.errors import DefinitionError, StatementError
from lakehold.kafka.connection_options import kafka_options
from lakehold.model.lake_definitions import Definitions
from lakehold.sql.run.list_holds import HOLD_COLUMNS
from lakehold.sql.run.script_run import Runner
from lakehold.sql.text.options import KAFKA
from lakehold.state.objects import DefinitionStore
from lakehold.state.store import MemoryState
from tests.unread import NoReads, NoSubscriptions, NothingUpstream, holds_without_tags, no_roles

SHOP = """
CREATE CONNECTION kafka TO KAFKA (BROKER '127.0.0.1:19092', SECURITY PROTOCOL 'SASL_SSL', SASL MECHANISM 'PLAIN',
  SASL USERNAME 'reader', SASL PASSWORD SECRET 'KP');
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
    """Tables that record drops in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.forgotten: list[str] = []

    def drop_iceberg_table(self, full_name: str, _: str) -> bool:
        self.done.append(f"drop {full_name}")
        return True

    def forget_source(self, name: str) -> None:
        self.forgotten.append(name)


def no_spark() -> NoReturn:
    pytest.fail("a statement over definitions started Spark")


def runner(store: DefinitionStore | None = None) -> tuple[Runner, RecordedTables]:
    tables, definitions = RecordedTables(), store or DefinitionStore(MemoryState())
    holds = holds_without_tags(definitions)
    made = Runner(definitions, tables, no_spark, NoReads, holds, NoSubscriptions(), no_roles(), NothingUpstream)
    return made, tables


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


def test_a_definition_that_differs_stays_and_the_notice_describes_the_difference() -> None:
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
    assert sources.rows == [("shop", "kafka", None, ["customers", "orders"], "avro", "registry", None, None)]


def test_show_create_names_secrets_and_can_be_run() -> None:
    lake, _ = with_shop()
    ((name, statement),) = lake.run("SHOW CREATE CONNECTION kafka").rows
    assert name == "kafka"
    assert "SASL PASSWORD SECRET 'KP'" in statement
    other, _ = runner()
    other.run(statement)
    assert other.store.definitions().connection("kafka") == lake.store.definitions().connection("kafka")


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("CREATE SOURCE shop FROM FILES '/x' FORMAT JSON", "source-exists", 'source "shop" already exists'),
        (
            "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT",
            "table-exists",
            'table "shop.orders" already exists\ndetail: It ',
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
            'source "shap" does not exist\ndetail: Known: "shop".\nhint: Did you mean "shop"?',
        ),
        (
            "CREATE TABLE mz_catalog.items FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT",
            "namespace-reserved",
            'namespace "mz_catalog" is reserved',
        ),
        (
            "CREATE SOURCE s FROM KAFKA CONNECTION registry (TOPIC 't') FORMAT JSON",
            "connection-type",
            "Expected a connection to Kafka, found one to a schema registry.\nhint: Name one of these: kafka.",
        ),
        (
            "DROP CONNECTION kafka",
            "connection-in-use",
            'Used by table "shop.customers", table "shop.orders", source "shop"',
        ),
        ("DROP SOURCE other", "source-missing", "hint: SHOW SOURCES lists them, CREATE SOURCE creates one."),
        ("DROP SOURCE shop", "source-in-use", 'Used by table "shop.customers", table "shop.orders".'),
        ("DROP SOURCE shap", "source-missing", 'Known: "shop".'),
        ("SHOW CREATE SOURCE shap", "source-missing", 'Known: "shop".'),
        ("INSERT INTO shop.orders VALUES (1)", "table-fed", 'table "shop.orders" is fed by source "shop"'),
        ("DELETE FROM lake.shop.orders", "table-fed", "DELETE by hand"),
        ("WITH a AS (SELECT 1) INSERT INTO shop.orders SELECT * FROM a", "table-fed", "INSERT by hand"),
    ],
)
def test_a_contradicting_statement_is_refused_and_changes_nothing(sql: str, code: str, message: str) -> None:
    lake, tables = with_shop()
    before = lake.store.definitions()
    with pytest.raises(DefinitionError) as refused:
        lake.run(sql)
    assert refused.value.code == code
    assert message in str(refused.value)
    assert lake.store.definitions() == before
    assert tables.done == []


def test_the_retained_history_of_a_table_is_set_and_reset_without_recreating_it() -> None:
    lake, _ = with_shop()
    before = lake.store.definitions().tables["shop.orders"]
    lake.run("ALTER TABLE shop.orders SET (RETAIN HISTORY = '2 days')")
    entry = lake.store.definitions().tables["shop.orders"]
    assert (entry.object_id, entry.created_at_ms) == (before.object_id, before.created_at_ms)
    assert entry.definition.options == {"retain_history": 2 * 86_400_000}
    assert lake.run("SHOW CREATE TABLE shop.orders").rows[0][1].endswith("WITH (RETAIN HISTORY '2d')")
    lake.run("ALTER TABLE shop.orders RESET (RETAIN HISTORY)")
    assert lake.store.definitions().tables["shop.orders"] == before


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
    assert tables.done == ["drop shop.customers", "drop shop.orders"]


def test_dropping_a_missing_object_is_reported_when_allowed() -> None:
    lake, _ = runner()
    assert lake.run("DROP SOURCE IF EXISTS shop").notices == ('source "shop" does not exist: nothing to drop',)


def test_nothing_runs_when_a_later_statement_is_malformed() -> None:
    lake, _ = runner()
    with pytest.raises(StatementError) as refused:
        lake.run("CREATE SOURCE a FROM FILES '/x' FORMAT JSON;\nCREATE SOURCE b FROM FILES '/x' FORMAT JSN")
    assert refused.value.place.line == 2
    assert lake.store.definitions() == Definitions()


def test_a_type_nested_without_end_is_refused() -> None:
    nested = f"{'ARRAY<' * 5000}INT{'>' * 5000}"
    with pytest.raises(StatementError, match="types may be nested 50 deep"):
        runner()[0].run(f"CREATE TABLE a.b (c {nested}) FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT")


@pytest.mark.parametrize("statement", ["SELECT {}", "SUBSCRIBE ({})", "CREATE HOLD h ({})"])
def test_brackets_nested_too_deeply_are_refused_with_their_position(statement: str) -> None:
    sql = "SELECT 1;\n" + statement.format(f"{'(' * 100_000}1{')' * 100_000}")
    with pytest.raises(StatementError, match="the statement is nested too deeply") as refused:
        runner()[0].run(sql)
    assert (refused.value.code, refused.value.place.line) == ("syntax", 2)


def test_an_error_in_a_script_names_the_line_and_keeps_earlier_statements() -> None:
    lake, _ = runner()
    with pytest.raises(DefinitionError) as refused:
        lake.run("CREATE SOURCE a FROM FILES '/x' FORMAT JSON;\nDROP CONNECTION nobody;")
    assert str(refused.value).startswith(
        'line 2: connection "nobody" does not exist\nDROP CONNECTION nobody;\n^^^^^^^^^^^^^^^^^^^^^^\n'
    )
    assert list(lake.store.definitions().sources) == ["a"]


class RacingStore(DefinitionStore):
    """A store in which another writer commits between a plan and its commit."""

    def __init__(self, meanwhile: str) -> None:
        super().__init__(MemoryState())
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


def test_a_lost_race_to_create_the_same_object_is_no_error_with_if_not_exists() -> None:
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


# --- holds ------------------------------------------------------------------------------------------------------------

HELD_TABLE = """
BEGIN;
CREATE TABLE shop.items FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT;
CREATE HOLD since_ever ON shop.items WITH (MAX LAG = '36h');
COMMIT;
"""


def names(lake: Runner) -> list[str]:
    return [f"{row[0]}.{row[1]}" for row in lake.run("SHOW HOLDS").rows]


def test_a_table_and_its_hold_are_created_together() -> None:
    lake, _ = with_shop()
    lake.run(HELD_TABLE)
    result = lake.run("SHOW HOLDS")
    assert result.columns == HOLD_COLUMNS
    assert result.rows == [("shop", "since_ever", None, ["shop.items"], "1d 12h", "off", None, None, None)]
    (held,) = lake.holds.all()
    assert held.tables[0].object_id == lake.store.definitions().table("shop.items").object_id
    assert held.sql == "CREATE HOLD since_ever ON shop.items WITH (MAX LAG = '36h')"


@pytest.mark.parametrize(
    ("sql", "code", "line"),
    [
        (HELD_TABLE.replace("since_ever", "taken"), "hold-exists", 4),
        (HELD_TABLE.replace("36h", "31 days"), "hold-max-lag", 4),
        (HELD_TABLE.replace("ON shop.items", "ON shop.items AT 5"), "not-readable", 4),
        (HELD_TABLE.replace("'orders'", "'nothing'"), "topic-missing", 3),
        (HELD_TABLE.replace("COMMIT", "\nCREATE SOURCE shop FROM FILES '/x' FORMAT JSON;\nCOMMIT"), "source-exists", 6),
    ],
)
def test_a_refused_transaction_leaves_nothing(sql: str, code: str, line: int) -> None:
    lake, _ = with_shop()
    lake.run("CREATE HOLD taken ON shop.orders")
    before = (lake.store.definitions(), lake.holds.all())
    with pytest.raises(DefinitionError) as refused:
        lake.run(sql)
    assert (refused.value.code, refused.value.place and refused.value.place.line) == (code, line)
    assert (lake.store.definitions(), lake.holds.all()) == before


def test_a_transaction_whose_race_is_lost_leaves_no_hold() -> None:
    shop, _ = with_shop()
    store = RacingStore("CREATE TABLE shop.items FROM SOURCE shop (TOPIC 'customers') ENVELOPE UPSERT")
    DefinitionStore.change(store, lambda _: shop.store.definitions())
    lake, _ = runner(store)
    with pytest.raises(DefinitionError, match="already exists"):
        lake.run(HELD_TABLE)
    assert lake.holds.all() == ()
    assert store.definitions().table("shop.items").definition.topic == "customers"


def test_a_transaction_can_be_applied_again() -> None:
    lake, _ = with_shop()
    again = HELD_TABLE.replace("TABLE shop", "TABLE IF NOT EXISTS shop").replace(
        "HOLD since", "HOLD IF NOT EXISTS since"
    )
    assert lake.run(again).notices == ()
    before = (lake.store.definitions(), lake.holds.all())
    assert lake.run(again).notices == ()
    assert lake.run(again.replace("36h", "2 days")).notices == (
        "hold \"since_ever\" exists and stays as it is: it has MAX LAG = '1d 12h', the statement says MAX LAG = '2d'",
    )
    assert (lake.store.definitions(), lake.holds.all()) == before


def test_definitions_created_together_are_one_commit() -> None:
    class Counted(DefinitionStore):
        changes = 0

        def change(self, apply: Callable[[Definitions], Definitions]) -> Definitions:
            self.changes += 1
            return super().change(apply)

    store = Counted(MemoryState())
    runner(store)[0].run(f"BEGIN; {SHOP} COMMIT")
    assert store.changes == 1
    assert len(store.definitions().tables) == 2


def test_holds_are_shown_renamed_and_dropped() -> None:
    lake, _ = with_shop()
    lake.run("CREATE HOLD h ON shop.orders, shop.customers WITH (CHECK = 'record'); ALTER HOLD shop.h RENAME TO \"On\"")
    ((name, statement),) = lake.run('SHOW CREATE HOLD "On"').rows
    assert name == "shop.On"
    assert statement == (
        "CREATE HOLD shop.`On` ON shop.orders, shop.customers\n  WITH (MAX LAG = '3h', CHECK = 'record')"
    )
    lake.run('DROP HOLD "On"')
    lake.run(statement)
    assert names(lake) == ["shop.On"]
    assert lake.run("DROP HOLD IF EXISTS h").notices == ('hold "h" does not exist: nothing to drop',)
    with pytest.raises(DefinitionError, match=r'Known: "shop\.On"\.'):
        lake.run("DROP HOLD h")


@pytest.mark.parametrize("sql", ["DROP TABLE shop.orders", "DROP TABLE shop.orders PURGE"])
def test_a_held_table_is_not_dropped(sql: str) -> None:
    lake, tables = with_shop()
    lake.run("CREATE HOLD h ON shop.orders, shop.customers")
    with pytest.raises(DefinitionError) as refused:
        lake.run(sql)
    assert refused.value.code in ("table-held", "table-fed")
    assert tables.done == []
    assert names(lake) == ["shop.h"]


def test_cascade_drops_the_whole_hold_with_the_table() -> None:
    lake, tables = with_shop()
    lake.run("CREATE HOLD pair ON shop.orders, shop.customers; CREATE HOLD other ON shop.customers")
    lake.run("DROP TABLE shop.orders CASCADE")
    assert tables.done == ["drop shop.orders"]
    assert names(lake) == ["shop.other"]
    lake.run("DROP SOURCE shop CASCADE")
    assert names(lake) == []
