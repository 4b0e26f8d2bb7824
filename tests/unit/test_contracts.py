"""Files in place of column lists: they become the definition, and their faults are reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lakehold.definitions import Envelope, Table
from lakehold.demo.shop_rows import SHOP_TABLES
from lakehold.errors import DefinitionError
from lakehold.sql.contracts import with_contract
from lakehold.sql.run.script_run import Runner
from lakehold.state.objects import DefinitionStore
from lakehold.state.store import MemoryState
from tests.unread import NoReads, NoSubscriptions, NothingUpstream, holds_without_tags, no_roles

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "iceberg_schemas" / "example"
DOCUMENTATION = ROOT / "docs" / "reference" / "sql.md"
SOURCE = "CREATE SOURCE IF NOT EXISTS s FROM FILES '/x' FORMAT JSON;"
CLAUSES = "FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT"


class NoTables:
    """Tables whose data may not be dropped."""

    def drop_iceberg_table(self, full_name: str, _: str) -> NoReturn:
        pytest.fail(f"{full_name} was dropped")

    def forget_source(self, name: str) -> None:
        """Do nothing, since no source was read."""


def no_spark() -> NoReturn:
    pytest.fail("a statement over definitions started Spark")


def runner(schemas: Path | None) -> Runner:
    store = DefinitionStore(MemoryState())
    holds = holds_without_tags(store)
    made = Runner(store, NoTables(), no_spark, NoReads, holds, NoSubscriptions(), no_roles(), NothingUpstream, schemas)
    made.run(SOURCE)
    return made


def field(name: str, of: Any, *, number: int = 1, required: bool = False) -> dict[str, Any]:
    return {"id": number, "name": name, "required": required, "type": of}


def write(directory: Path, *fields: dict[str, Any], identifiers: tuple[int, ...] = (), **content: Any) -> Path:
    """Write the file of table `a.t`."""
    schema = {"type": "struct", "identifier-field-ids": identifiers, "fields": fields}
    path = directory / "a.t.json"
    path.write_text(json.dumps({"table": "a.t", "schema": schema, **content}))
    return path


def defined(lake: Runner) -> Table:
    return lake.store.definitions().table("a.t").definition


EVERY_TYPE = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "decimal(12, 2)": "DECIMAL(12, 2)",
    "string": "STRING",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
}


def test_a_file_defines_the_same_table_as_columns_in_the_statement(tmp_path: Path) -> None:
    a_list = {"type": "list", "element-id": 101, "element": "long", "element-required": False}
    a_map = {"type": "map", "key-id": 102, "key": "string", "value-id": 103, "value": "date", "value-required": False}
    nested = {"type": "struct", "fields": [field("odd name", a_list), field("m", a_map)]}
    simple = [field(f"c{number}", of, number=number) for number, of in enumerate(EVERY_TYPE, start=1)]
    write(tmp_path, *simple, field("Nested", nested, number=50))
    by_file, by_list = runner(tmp_path), runner(None)
    by_file.run(f"CREATE TABLE a.t {CLAUSES}")
    columns = ", ".join(f"c{number} {of}" for number, of in enumerate(EVERY_TYPE.values(), start=1))
    by_list.run(
        f"CREATE TABLE a.t ({columns}, Nested STRUCT<`odd name`: ARRAY<BIGINT>, m: MAP<STRING, DATE>>) {CLAUSES}"
    )
    assert defined(by_file) == defined(by_list)
    ((_, statement),) = by_file.run("SHOW CREATE TABLE a.t").rows
    again = runner(None)
    again.run(statement)
    assert defined(again) == defined(by_file)


def test_the_columns_of_the_statement_win_and_other_tables_have_no_file(tmp_path: Path) -> None:
    write(tmp_path, field("id", "long"))
    lake = runner(tmp_path)
    lake.run(f"CREATE TABLE a.t (v STRING) {CLAUSES}; CREATE TABLE a.other {CLAUSES}")
    assert [c.name for c in defined(lake).columns] == ["v"]
    assert lake.store.definitions().table("a.other").definition.columns == ()


def test_the_key_of_the_file_is_the_key_unless_the_statement_names_one(tmp_path: Path) -> None:
    columns = (field("Region", "string", number=1, required=True), field("id", "long", number=2, required=True))
    for content in (
        {"key": ["id", "Region"]},
        {"identifiers": (2, 1)},
        {"key": ["id", "Region"], "identifiers": (1, 2)},
    ):
        write(tmp_path, *columns, **content)
        lake = runner(tmp_path)
        lake.run(f"CREATE TABLE a.t {CLAUSES}")
        assert defined(lake).key == ("id", "Region")
    write(tmp_path, field("Region", "string"), field("id", "long", number=2), key=["id"])
    lake = runner(tmp_path)
    lake.run(f"CREATE TABLE a.t {CLAUSES} KEY (region)")
    assert defined(lake).key == ("Region",)


def test_a_script_can_be_applied_again_and_a_changed_file_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, field("id", "long"))
    lake = runner(tmp_path)
    script = f"{SOURCE} CREATE TABLE IF NOT EXISTS a.t {CLAUSES}"
    assert lake.run(script).notices == ()
    before = lake.store.definitions()
    assert lake.run(script).notices == ()
    write(tmp_path, field("id", "long"), field("v", "string", number=2))
    assert lake.run(script).notices == (
        'table "a.t" exists and stays as it is: it has (id bigint), the statement says (id bigint, v string)',
    )
    assert lake.store.definitions() == before


def test_a_system_table_has_no_contract(tmp_path: Path) -> None:
    (tmp_path / "mz_catalog.mz_batches.json").write_text("no contract at all")
    with pytest.raises(DefinitionError) as refused:
        runner(tmp_path).run(f"CREATE TABLE mz_catalog.mz_batches {CLAUSES}")
    assert refused.value.code == "namespace-reserved"


LIST = {"type": "list", "element-id": 9, "element": "uuid", "element-required": False}


@pytest.mark.parametrize(
    ("fields", "content", "message"),
    [
        pytest.param([], {}, "It names no columns.", id="empty"),
        pytest.param([field("id", "long")], {"table": "a.u"}, 'contract of table "a.u"', id="another-table"),
        pytest.param([field("id", "long")], {"partition-spec": []}, 'At "partition-spec"', id="partitions"),
        pytest.param([field("id", "bigint")], {}, "Unsupported field type: 'bigint', found 'bigint'", id="sql-type"),
        pytest.param([field("id", "decimal(50, 2)")], {}, "precision must be between 1 and 38", id="precision"),
        pytest.param([field("id", "decimal(2, 5)")], {}, "a scale is at most the precision", id="scale"),
        pytest.param([field("id", {"type": "list"})], {}, "A nested type in it lacks", id="nested"),
        pytest.param([field("at", "time")], {}, 'Column "at" has type time, which a fed table cannot', id="time"),
        pytest.param([field("f", "fixed[4]")], {}, 'Column "f" has type fixed[4]', id="fixed"),
        pytest.param([field("l", LIST)], {}, 'Column "l.element" has type uuid', id="uuid-in-a-list"),
        pytest.param(
            [field("s", {"type": "struct", "fields": []})], {}, 'Column "s" has type struct<>', id="no-fields"
        ),
        pytest.param([field("v", "long", required=True)], {}, 'Column "v" is required', id="required"),
        pytest.param(
            [field("s", {"type": "struct", "fields": [field("x", "int", required=True)]})],
            {},
            'Column "s.x" is required',
            id="required-in-a-struct",
        ),
        pytest.param([field("v", "long"), field("V", "int", number=2)], {}, 'Column "v" is given twice', id="twice"),
        pytest.param([field("_Pos", "long")], {}, 'Column "_Pos" of the table has a reserved name', id="reserved"),
        pytest.param(
            [field("s", {"type": "struct", "fields": [field("x", "int"), field("X", "int", number=2)]})],
            {},
            'Columns "s"."x" and "s"."X" of the table differ in case only',
            id="case-in-a-struct",
        ),
        pytest.param(
            [field("id", "long")], {"key": ["no"]}, 'Key column "no" is not one of its columns: id.', id="key-unknown"
        ),
        pytest.param(
            [field("a", "long", required=True), field("b", "long", number=2)],
            {"key": ["b"], "identifiers": (1,)},
            "Its key is b, its identifier-field-ids are those of a.",
            id="two-keys",
        ),
        pytest.param([field("id", "long")], {"identifiers": (7,)}, "Could not find field with id: 7", id="identifier"),
    ],
)
def test_a_file_that_no_table_can_keep_is_refused(
    tmp_path: Path, fields: list[dict[str, Any]], content: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, *fields, **content)
    lake = runner(tmp_path)
    with pytest.raises(DefinitionError) as refused:
        lake.run(f"CREATE TABLE a.t {CLAUSES}")
    assert refused.value.message == 'the contract of table "a.t" cannot be used'
    assert refused.value.code == "contract-invalid"
    assert str(path) in refused.value.detail
    assert message in refused.value.detail
    assert refused.value.hint
    assert "a.t" not in lake.store.definitions().tables


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Invalid JSON: EOF"),
        (b'{"table": "a.t",\n "schema": }', "Invalid JSON: expected value at line 2"),
        (b"[]", "Input should be an object"),
        (b'{"table": "a.t"}', 'At "schema": Field required.'),
        (b"\xff\xfe", "It is not UTF-8. Byte 0, counted from 0, is 0xFF: invalid start byte."),
        (b"[" * 100_000, "Invalid JSON: recursion limit exceeded"),
    ],
)
def test_a_file_that_is_no_json_of_a_table_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.t.json").write_bytes(content)
    with pytest.raises(DefinitionError, match="cannot be used") as refused:
        runner(tmp_path).run(f"CREATE TABLE a.t {CLAUSES}")
    assert message in refused.value.detail


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.t.json").mkdir()
    with pytest.raises(DefinitionError, match="Is a directory"):
        runner(tmp_path).run(f"CREATE TABLE a.t {CLAUSES}")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_the_file_in_the_documentation_is_a_contract(tmp_path: Path, encoding: str) -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```$", DOCUMENTATION.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "app.users.json").write_text(text, encoding=encoding)
    contract = with_contract(Table("app", "users", "s", "t", Envelope.UPSERT), tmp_path)
    assert contract.key == ("id",)
    assert [column.type for column in contract.columns] == ["bigint", "string", "array<string>"]


@pytest.mark.parametrize("table", SHOP_TABLES, ids=lambda table: table.name)
def test_the_example_names_the_columns_of_the_shop(table: Any) -> None:
    contract = with_contract(Table("shop", table.name, "shop", "t", Envelope.DEBEZIUM), EXAMPLE)
    assert tuple(column.name for column in contract.columns) == table.columns
    assert contract.key == table.key
