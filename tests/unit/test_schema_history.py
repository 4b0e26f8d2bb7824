"""Statements in the schema history of MySQL and MariaDB: which of them may change rows of which tables without messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.snapshots import FoundAlteration, FoundSnapshot
from lakehold.upstream.mysql.schema_history import SchemaHistory
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import ForgetPosition, RecordFirstSnapshot, RequestSnapshot, Step
from tests.upstream_world import OF_MARIADB, World, reconcile, target

_CHANGES, _REMOVES = "changes", "removes"


def _column(name: str, kind: str = "INT", **parts: Any) -> dict[str, Any]:
    return {"name": name, "typeName": kind, "length": 11, "optional": True, "generated": False, **parts}


_ID = _column("id", optional=False)
_N = _column("n")
_WORD = _column("word", "VARCHAR", length=20, charsetName="latin1")
_KIND = _column("kind", "ENUM", length=1, enumValues=["'a'", "'b'"])
_T = [_ID, _N, _WORD, _KIND]


def _record(at: int, text: str, columns: Sequence[Mapping[str, Any]] | None, **position: Any) -> dict[str, Any]:
    change = [] if columns is None else [{"type": "ALTER", "id": '"shop"."t"', "table": {"columns": columns}}]
    place = {"ts_sec": at, "file": "binlog.1", "pos": at, **position}
    return {"position": place, "databaseName": "shop", "ddl": text, "tableChanges": change}


def _history() -> SchemaHistory:
    """Return a history with a table that had a column `old`."""
    history = SchemaHistory()
    history.take(0, _record(1, "CREATE TABLE t (…)", [*_T, _column("old")], snapshot="INITIAL"))
    history.take(1, _record(2, "ALTER TABLE t DROP COLUMN old", _T))
    return history


def _effect(text: str, columns: Sequence[Mapping[str, Any]] | None) -> str | None:
    history = _history()
    assert history.altered == {}
    history.take(2, _record(3, text, columns))
    found = history.altered.get("shop.t")
    if found is None:
        return None
    assert found.changed_at == 2
    return _REMOVES if found.removed_at == 2 else _CHANGES


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD INDEX (n), ADD CONSTRAINT c CHECK (n > 1), COMMENT = 'a, DROP PARTITION p', ENGINE=InnoDB",
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS n INT",
        "ALTER TABLE t ALTER COLUMN n SET DEFAULT 5, ALTER n DROP DEFAULT",
        "ALTER TABLE t ADD PARTITION (PARTITION p4 VALUES LESS THAN (400)), ALGORITHM=COPY, LOCK=SHARED",
        "ALTER TABLE t REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (9))",
        "ALTER TABLE t FORCE",
        "ALTER TABLE t MODIFY n INT DEFAULT 5 COMMENT 'five'",
        "ALTER TABLE t CHANGE n n INT FIRST",
        "ALTER TABLE t RENAME INDEX a TO b, DROP KEY c",
        "ALTER TABLE t DROP word",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, n), DROP FOREIGN KEY f",
        "ALTER TABLE t DEFAULT CHARACTER SET utf8mb4, ORDER BY n, ROW_FORMAT = DYNAMIC",
        "ALTER TABLE t NOWAIT",
        "ALTER TABLE t WAIT 5 ADD INDEX (n)",
        "ALTER TABLE wait NOWAIT DROP PARTITION p",
        "ALTER TABLE t COMMENT = 'a' ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
        "ALTER TABLE other MODIFY n TEXT",
        "ALTER TABLE more.t DROP PARTITION p",
        "CREATE TABLE IF NOT EXISTS t (id INT)",
        "CREATE TABLE other LIKE t",
        "DROP INDEX i ON t",
        "DROP DATABASE more",
        "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.n = 1",
        "ALTER DATABASE shop CHARACTER SET utf8mb4",
        "not a statement ' at all",
        "/*!40101 SET NAMES utf8 */",
        r"ALTER TABLE other MODIFY n INT COMMENT 'a\'",
        r"CREATE TABLE t (id INT COMMENT 'a\')",
        r"TRUNCATE TABLE t /* it's a\'",
        r"ALTER DATABASE shop COMMENT 'a\'",
        r"CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.word = 'a\'",
    ],
)
def test_a_statement_that_keeps_all_rows_needs_no_snapshot(text: str) -> None:
    assert _effect(text, _T) is None


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("ALTER TABLE t DROP n, ADD n INT", _CHANGES),
        ("ALTER TABLE t RENAME COLUMN n TO word, RENAME COLUMN word TO n", _CHANGES),
        ("ALTER TABLE t CHANGE COLUMN n m INT", _CHANGES),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", _CHANGES),
        ("alter table `t` drop partition `p`", _REMOVES),
        ("ALTER TABLE shop.t TRUNCATE PARTITION ALL", _REMOVES),
        ("ALTER TABLE other EXCHANGE PARTITION p WITH TABLE t", _REMOVES),
        ("ALTER TABLE t /*!50100 DROP PARTITION p */", _REMOVES),
        ("ALTER IGNORE TABLE t ADD UNIQUE (n)", _REMOVES),
        ("ALTER TABLE t ENGINE = BLACKHOLE", _REMOVES),
        ("ALTER TABLE t COMMENT 'a' ENGINE = BLACKHOLE", _REMOVES),
        ("ALTER TABLE t DISCARD TABLESPACE", _REMOVES),
        ("ALTER TABLE t NOWAIT CHANGE n m INT", _CHANGES),
        ("ALTER ONLINE TABLE IF EXISTS `shop`.`t` WAIT 5 DROP PARTITION p", _REMOVES),
        ("ALTER TABLE t /*M!100301 WAIT 5 */ ADD INDEX (n), DROP PARTITION p", _REMOVES),
        ("ALTER IGNORE TABLE t NOWAIT ADD UNIQUE (n)", _REMOVES),
        ("SET STATEMENT lock_wait_timeout = 1 FOR ALTER TABLE t DROP PARTITION p", _REMOVES),
        ("ALTER TABLE other RENAME TO t", _REMOVES),
        ("RENAME TABLE t TO u, other TO t", _REMOVES),
        ("DROP TABLE IF EXISTS `u`, `shop`.`t` /* generated by server */", _REMOVES),
        ("CREATE OR REPLACE TABLE t (id INT)", _REMOVES),
        ("DROP DATABASE IF EXISTS `shop`", _REMOVES),
        ("/*!50003 ALTER TABLE t DROP PARTITION p */", _REMOVES),
        ("/*!50003 ALTER TABLE t CHANGE n m INT */ /* generated by server */", _CHANGES),
        ("ALTER TABLE t /*!50100 CHANGE n m INT COMMENT '/*!50100 */' */ # it's done", _CHANGES),
        ("/*M!100100 DROP TABLE `t` */", _REMOVES),
        ("/*! RENAME TABLE t TO u */", _REMOVES),
        ("-- it's a note\n/*!80000ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4*/", _CHANGES),
        (r"ALTER TABLE t MODIFY n INT COMMENT 'a\'", _REMOVES),
        (r"/* it's mine */ alter table `shop`.`t` MODIFY n INT COMMENT 'a\'", _REMOVES),
        (r"SET STATEMENT lock_wait_timeout = 1 FOR ALTER TABLE t MODIFY n INT COMMENT 'a\'", _REMOVES),
        (r"ALTER TABLE other COMMENT 'a\', RENAME TO shop.t", _REMOVES),
        (r"CREATE OR REPLACE TABLE t (id INT COMMENT 'a\')", _REMOVES),
        (r"/*!50003 ALTER TABLE t MODIFY n INT COMMENT 'a\' */", _REMOVES),
    ],
)
def test_a_statement_that_may_change_or_remove_rows_is_found(text: str, effect: str) -> None:
    assert _effect(text, _T) == effect


@pytest.mark.parametrize(
    ("text", "column", "effect"),
    [
        ("ALTER TABLE t ADD c INT", _column("c"), None),
        ("ALTER TABLE t ADD COLUMN old INT", _column("old"), _CHANGES),
        ("ALTER TABLE t ADD c INT DEFAULT NULL COMMENT 'as before'", _column("c"), None),
        ("ALTER TABLE t ADD (c INT, d INT DEFAULT 5)", _column("d"), _CHANGES),
        ("ALTER TABLE t ADD COLUMN c VARCHAR(36) DEFAULT (uuid()) FIRST", _column("c", "VARCHAR"), _CHANGES),
        ("ALTER TABLE t NOWAIT ADD COLUMN c INT DEFAULT 5", _column("c"), _CHANGES),
        ("ALTER TABLE t WAIT 5 ADD COLUMN c INT", _column("c"), None),
        ("ALTER TABLE t ADD c INT NOT NULL", _column("c", optional=False), _CHANGES),
        ("ALTER TABLE t ADD c INT AS (id + 1)", _column("c"), _CHANGES),
        ("ALTER TABLE t ADD c TIMESTAMP", _column("c", "TIMESTAMP"), _CHANGES),
        ("ALTER TABLE t MODIFY n INT GENERATED ALWAYS AS (id + 2) STORED", _N, _CHANGES),
        ("ALTER TABLE t MODIFY n BIGINT", {**_N, "typeName": "BIGINT", "length": 20}, None),
        ("ALTER TABLE t MODIFY n INT UNSIGNED", {**_N, "typeName": "INT UNSIGNED"}, _CHANGES),
        ("ALTER TABLE t MODIFY n SMALLINT", {**_N, "typeName": "SMALLINT"}, _CHANGES),
        ("ALTER TABLE t MODIFY n INT NOT NULL", {**_N, "optional": False}, _CHANGES),
        ("ALTER TABLE t MODIFY word VARCHAR(30)", {**_WORD, "length": 30}, None),
        ("ALTER TABLE t MODIFY word VARCHAR(3)", {**_WORD, "length": 3}, _CHANGES),
        ("ALTER TABLE t MODIFY word VARCHAR(20) CHARACTER SET latin2", {**_WORD, "charsetName": "latin2"}, _CHANGES),
        ("ALTER TABLE t MODIFY kind ENUM('a', 'b', 'c')", {**_KIND, "enumValues": ["'a'", "'b'", "'c'"]}, None),
        ("ALTER TABLE t MODIFY kind ENUM('b', 'c')", {**_KIND, "enumValues": ["'b'", "'c'"]}, _CHANGES),
    ],
)
def test_a_column_that_is_new_or_has_another_type_is_compared(
    text: str, column: Mapping[str, Any], effect: str | None
) -> None:
    others = [each for each in _T if each["name"] != column["name"]]
    added = [_column("c")] if text.startswith("ALTER TABLE t ADD (") else []
    assert _effect(text, [*others, *added, column]) == effect


@pytest.mark.parametrize(
    ("text", "is_unread"),
    [
        ("ALTER TABLE t RENAME COLUMN n TO word, RENAME COLUMN word TO n", True),
        ("ALTER TABLE t RENAME COLUMN IF EXISTS n TO `Word`, RENAME COLUMN word TO n", True),
        ("ALTER TABLE t CHANGE n word INT, CHANGE COLUMN word n VARCHAR(20)", True),
        ("ALTER TABLE t DROP COLUMN word, RENAME COLUMN n TO word", False),
        ("ALTER TABLE t RENAME COLUMN n TO m", False),
        ("ALTER TABLE t CHANGE n N INT", False),
        ("ALTER TABLE t RENAME INDEX n TO word", False),
        ("ALTER TABLE t RENAME TO word", False),
    ],
)
def test_debezium_does_not_know_the_columns_after_one_takes_the_name_of_another(text: str, is_unread: bool) -> None:
    history = _history()
    history.take(2, _record(3, text, [_ID, _KIND, _N]))
    altered = history.altered.get("shop.t", FoundAlteration(0))
    assert (altered.unread_at == 2) is is_unread


_ALTERED = FoundAlteration(2, 2)
_UNREAD = FoundAlteration(2, 2, 2)


@pytest.mark.parametrize(
    ("text", "altered"),
    [
        ("ALTER TABLE t ADD SYSTEM VERSIONING", _UNREAD),
        ("ALTER TABLE shop.t ADD COLUMN ip INET6", _UNREAD),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS ip INET6, COMMENT 'none'", _UNREAD),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, p WITHOUT OVERLAPS)", _UNREAD),
        ("ALTER TABLE t ADD UNIQUE IF NOT EXISTS u (n)", _UNREAD),
        ("RENAME TABLE t TO u", _UNREAD),
        ("DROP TABLE t", _UNREAD),
        ("TRUNCATE t", _UNREAD),
        ("ALTER TABLE t CONVERT PARTITION p TO TABLE u", _ALTERED),
        ("ALTER TABLE t PARTITION BY KEY() PARTITIONS 3", None),
        ("ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS c CHECK (n > 1)", None),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", None),
        ("CREATE UNIQUE INDEX i ON t (n)", None),
        ("DROP DATABASE more", None),
    ],
)
def test_a_statement_that_debezium_cannot_read_is_recorded_without_tables(
    text: str, altered: FoundAlteration | None
) -> None:
    history = _history()
    history.take(2, _record(3, text, None))
    assert history.altered.get("shop.t") == altered


def test_a_table_is_known_again_with_its_next_definition() -> None:
    history = _history()
    history.take(2, _record(3, "ALTER TABLE t ADD SYSTEM VERSIONING", None))
    history.take(3, _record(4, "ALTER TABLE t ADD c INT", [*_T, _column("c")]))
    assert history.altered["shop.t"].unread_at == 2
    defined = _record(5, "CREATE TABLE `t` (…)", _T, snapshot="INITIAL")
    defined["tableChanges"][0]["type"] = "CREATE"
    history.take(4, defined)
    assert history.altered == {"shop.t": FoundAlteration(2, 2)}


def test_a_table_whose_definition_debezium_cannot_read_is_undefined_until_somebody_alters_it() -> None:
    history = _history()
    history.take(2, _record(5, "DROP TABLE IF EXISTS `shop`.`t`", None, snapshot="INITIAL"))
    assert history.undefined == set()
    history.take(3, _record(5, "CREATE TABLE `t` (PERIOD FOR p (a, b))", None, snapshot="INITIAL"))
    assert history.undefined == {"shop.t"}
    history.take(4, _record(6, "ALTER TABLE other DROP PERIOD FOR p", None))
    assert history.undefined == {"shop.t"}
    history.take(5, _record(7, "ALTER TABLE t DROP PERIOD FOR p", None))
    assert history.undefined == set()


def test_a_new_table_whose_definition_debezium_cannot_read_is_not_known() -> None:
    history = _history()
    history.take(2, _record(3, "CREATE TABLE new (id INT, ip INET6)", None))
    assert history.altered == {"shop.new": FoundAlteration(2, 2, 2)}


def test_a_statement_that_a_restarted_connector_writes_again_is_taken_once() -> None:
    history = _history()
    history.take(2, _record(3, "ALTER TABLE t DROP PARTITION p", _T))
    history.take(3, _record(3, "ALTER TABLE t DROP PARTITION p", _T))
    assert history.altered == {"shop.t": FoundAlteration(2, 2)}


def test_statements_of_a_snapshot_alter_nothing() -> None:
    history = _history()
    history.take(2, _record(9, "DROP TABLE IF EXISTS `shop`.`t`", None, snapshot="INITIAL"))
    assert history.altered == {}


def _planned(altered: FoundAlteration, until: int = 0) -> list[Step]:
    """Return the steps for a captured table of MariaDB that was altered, and whose last snapshot is from before `until`."""
    columns = {"shop.T": (FoundColumn("id", "int(11)", FoundType("int", "int(11)"), is_key=True),)}
    world = World(frozenset({"shop.T"}), is_mariadb=True, columns=columns)
    goal = target({"a1": "shop.T"}, capture=OF_MARIADB)
    assert reconcile(world, goal)
    world.ingest()
    snapshots = {"a1": replace(world.snapshots["a1"], altered_until=until)}
    assert isinstance(snapshots["a1"], FoundSnapshot)
    found = replace(world.inspect(goal), altered={"shop.t": altered}, snapshots=snapshots)
    return list(plan(replace(goal, lake=world.lake(goal)), found).steps)


def test_an_altered_table_is_snapshotted_again_and_a_second_time_if_rows_may_be_gone() -> None:
    (step,) = _planned(FoundAlteration(5))
    assert isinstance(step, RequestSnapshot)
    assert step.repeat is not None
    assert step.repeat.confirms
    (step,) = _planned(FoundAlteration(5, 5), until=5)
    assert isinstance(step, RequestSnapshot)
    assert step.repeat is not None
    assert not step.repeat.confirms
    assert _planned(FoundAlteration(5, 5), until=6) == []


def test_all_tables_are_snapshotted_after_create_or_replace_table_whose_columns_debezium_does_not_read() -> None:
    assert not any(isinstance(step, ForgetPosition) for step in _planned(FoundAlteration(5, 5, 3), until=4))
    steps = _planned(FoundAlteration(5, 5, 5), until=4)
    assert [step for step in steps if isinstance(step, ForgetPosition | RecordFirstSnapshot)] == [
        ForgetPosition("shop"),
        RecordFirstSnapshot("shop", {"a1": "shop.T"}),
    ]


def test_a_foreign_key_that_deletes_rows_is_reported_because_the_database_logs_no_such_change() -> None:
    world = World(frozenset({"shop.t"}), is_mariadb=True)
    goal = target({"a1": "shop.t"}, capture=OF_MARIADB)
    assert reconcile(world, goal)
    found = replace(world.inspect(goal), acting_keys={"shop.t": ("of_p (ON DELETE CASCADE)",)})
    (hint,) = plan(goal, found).hints
    assert hint.startswith("foreign key of_p (ON DELETE CASCADE) changes rows of shop.t that")
    assert "ALTER SOURCE shop RESNAPSHOT" in hint
