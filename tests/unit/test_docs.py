"""The documentation agrees with the code: each check fails when one of the two changes alone."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from mkdocs.utils.yaml import yaml_load
from pydantic_core import PydanticUndefined

from lakehold.cli import backfill, ingest, maintain
from lakehold.cli.app import app
from lakehold.cli.stack import app as stack_app
from lakehold.ingest.decode.avro_schema import from_avro_json
from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.ingest.decode.logical import logical_type
from lakehold.ingest.decode.types import iceberg_type
from lakehold.overview.table_status import State
from lakehold.publish import subscriptions
from lakehold.secrets import SECRET_PREFIX
from lakehold.settings import ENVIRONMENT_PREFIX, Settings, load_settings
from lakehold.spark_server.cli import app as spark_app
from lakehold.sql.plan import show as plan_show
from lakehold.sql.run import list_holds
from lakehold.sql.run import roles as run_roles
from lakehold.sql.text import options
from lakehold.stack.addresses import StackPorts
from lakehold.state.schema_files import system_tables
from lakehold.status import COLUMNS as STATUS_COLUMNS
from lakehold.upstream.types import value_options
from tests import runnable_pages, type_tables
from tests.doc_pages import ROOT, inline_code, page, section, table_rows
from tests.runnable_pages import parts

GROUPS = {"spark": spark_app, "stack": stack_app}
PAGES = [*runnable_pages.PAGES, ROOT / "CHANGELOG.md"]
COMMANDS = page("reference/commands.md")
METRICS = page("reference/metrics.md")
SETTINGS = page("reference/settings.md")
SQL = page("reference/sql.md")
TYPES = page("reference/types.md")

_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"\bLAKEHOLD_[A-Z_]*[A-Z](?![A-Z_])")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the blocks in a language of all pages, each with its place."""
    found = ((_name(path), part) for path in PAGES for part in parts(path.read_text()))
    return [(f"{name}:{part.line}", part.text) for name, part in found if part.kind == language]


def shell_lines() -> Iterator[tuple[str, list[str]]]:
    """Yield every command of a shell block, and each command that is alone in a cell of the commands' table."""
    for place, text in blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield f"{place}: {line}", words
    for cells in table_rows(section(COMMANDS, "## All commands") + section(COMMANDS, "## Make")):
        for code in inline_code(cells[0]):
            if code.startswith(("lakehold ", "make ")):
                yield f"commands.md: {code}", shlex.split(code)


def parse_command(words: list[str]) -> None:
    """Parse the arguments of `lakehold` as the command would, and run nothing."""
    of_group = GROUPS.get(words[0])
    group: Any = typer.main.get_command(of_group or app)
    context = group.make_context("lakehold", words[1:] if of_group else words)
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, rest, parent=context)


LINES = list(shell_lines())


@pytest.mark.parametrize("words", [words for _, words in LINES], ids=[where for where, _ in LINES])
def test_commands_are_parsed(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    match words:
        case ["lakehold", *arguments]:
            parse_command(arguments)
        case ["make", *wanted]:
            assert wanted
            assert set(wanted) <= set(targets)
        case _:
            pytest.fail("only `lakehold` and `make` belong into a shell block: the others cannot be checked")


def test_commands_of_issue_forms_are_parsed() -> None:
    forms = [yaml_load(path.read_text()) for path in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))]
    texts = [field["attributes"].get("description", "") for form in forms for field in form.get("body", [])]
    named = [code for text in texts for code in inline_code(text) if re.match(r"lakehold \w", code)]
    assert len(named) > 3
    for command in named:
        parse_command(shlex.split(command)[1:])


def test_a_command_that_does_not_exist_is_found() -> None:
    for wrong in (
        ["ingest", "shop", "--folow"],
        ["publish", "x", "--once"],
        ["stack", "restart"],
        ["status", "--format", "xml"],
    ):
        with pytest.raises(Exception, match=r"No such|is not one of|nvalid"):
            parse_command(wrong)


def test_every_make_target_and_command_is_described() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)) - {"help"}
    described = {words[1] for where, words in LINES if words[0] == "make" and where.startswith("commands.md")}
    assert described == targets
    commands = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    assert {words[1] for _, words in LINES if words[0] == "lakehold"} == commands | set(GROUPS)


def test_every_make_target_in_the_text_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {match for path in PAGES for match in re.findall(r"`make ([a-z-]+)`", path.read_text())}
    assert named <= targets


# --- SQL --------------------------------------------------------------------------------------------------------------


def test_every_option_is_described_with_its_choices() -> None:
    sections: dict[str, tuple[options.OptionSet, ...]] = {
        "## CREATE CONNECTION": tuple(options.CONNECTIONS.values()),
        "## CREATE SOURCE": (options.SOURCE, options.POSTGRES_CAPTURE, options.MYSQL_CAPTURE, options.INTO_KAFKA),
        "## CREATE TABLE FROM SOURCE": (options.TABLE,),
    }
    for heading, sets in sections.items():
        known = {name: option for each in sets for name, option in each.known.items()}
        text = section(SQL, heading)
        rows = {name: cells[1] for cells in table_rows(text) for name in inline_code(cells[0])}
        assert set(rows) == {options.spoken(name) for name in known}
        for name, option in known.items():
            if isinstance(option, options.TextOption):
                written = set(re.findall(r"'([^']+)'", rows[options.spoken(name)])) if option.choices else set()
                assert written == set(option.choices), name
            elif isinstance(option, options.NumberOption):
                assert name != "buckets" or f"{option.minimum} to {option.maximum_inclusive}" in rows["BUCKETS"]


def test_the_columns_of_show_are_described() -> None:
    rows = {inline_code(cells[0])[0]: inline_code(cells[1]) for cells in table_rows(section(SQL, "## SHOW"))}
    assert rows["SHOW CONNECTIONS"] == list(plan_show._CONNECTION_COLUMNS)
    assert rows["SHOW SOURCES"] == list(plan_show._SOURCE_COLUMNS)
    assert rows["SHOW TABLES"] == list(plan_show._TABLE_COLUMNS)
    assert rows["SHOW SUBSCRIPTIONS"] == list(subscriptions.COLUMNS)
    assert rows["SHOW HOLDS"] == list(list_holds.HOLD_COLUMNS)
    assert rows["SHOW ROLES"] == list(run_roles.ROLE_COLUMNS)
    assert [name for name in rows["SHOW GRANTS"] if name not in ("table", "schema")] == list(run_roles.GRANT_COLUMNS)


# --- types ------------------------------------------------------------------------------------------------------------


def documented_types(heading: str) -> list[tuple[str, str, str]]:
    found = []
    for cells in table_rows(section(TYPES, heading)):
        over, iceberg = inline_code(cells[1]), inline_code(cells[2]) if len(cells) > 2 else []
        if over and iceberg:
            found.append((inline_code(cells[0])[0], over[0], iceberg[0]))
    return found


@pytest.mark.parametrize(("name", "over", "iceberg"), documented_types("## Logical types of Debezium and Connect"))
def test_logical_types_of_connect_become_the_documented_types(name: str, over: str, iceberg: str) -> None:
    assert str(iceberg_type(ConnectSchema(SchemaType(over), name=name))) == iceberg


@pytest.mark.parametrize(("name", "over", "iceberg"), documented_types("## Logical types of plain Avro"))
def test_logical_types_of_avro_become_the_documented_types(name: str, over: str, iceberg: str) -> None:
    schema = from_avro_json(f'{{"type": "{over}", "logicalType": "{name}"}}').schema
    assert str(iceberg_type(schema)) == iceberg


def test_every_logical_type_with_a_rule_is_documented() -> None:
    connect = (ROOT / "tests" / "golden" / "types" / "connect.txt").read_text()
    tested = set(re.findall(r'"name": "((?:io\.debezium|org\.apache)[\w.]+)"', connect))
    with_rule = {name for name in tested for t in SchemaType if logical_type(ConnectSchema(t, name=name)) is not None}
    assert len(with_rule) > 10
    assert with_rule <= set(inline_code(TYPES))


# --- types of databases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", type_tables.TABLES)
def test_types_of_databases_become_the_documented_types(name: str) -> None:
    assert type_tables.written(name) == type_tables.TABLES[name](), "python -m tests.type_tables writes it"


def test_options_that_map_values_are_documented_with_their_values() -> None:
    written = {
        (inline_code(c[0])[0], v)
        for c in table_rows(section(TYPES, "## Options of the connector"))
        for v in inline_code(c[1])
    }
    options = [*value_options.COMMON.items(), *value_options.POSTGRES.items(), *value_options.MYSQL.items()]
    assert written == {(name, value) for name, value in options if name != value_options.TYPED}
    assert {value_options.TYPED, value_options.EXCLUDED} <= set(inline_code(TYPES))


def test_plain_types_become_the_documented_types() -> None:
    rows = [[inline_code(cell) for cell in cells] for cells in table_rows(section(TYPES, "## Plain types"))]
    named = [(connect, avro, iceberg[0]) for connect, avro, iceberg in rows if connect and avro and iceberg]
    for connect, avro, iceberg in named:
        assert {str(iceberg_type(ConnectSchema(SchemaType(name)))) for name in connect} == {iceberg}
        simple = [name for name in avro if name not in ("enum", "fixed")]
        assert {str(iceberg_type(from_avro_json(f'"{name}"').schema)) for name in simple} == {iceberg}
    plain = set(SchemaType) - {SchemaType.ARRAY, SchemaType.MAP, SchemaType.STRUCT}
    assert {name for connect, _, _ in named for name in connect} == plain


# --- links, settings, columns -----------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_relative_links_resolve(path: Path) -> None:
    for link in _LINK.findall(path.read_text()):
        if "://" in link:
            continue
        linked, _, anchor = link.partition("#")
        target = path.parent / linked if linked else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_linked_from_the_readme_or_an_overview_that_is() -> None:
    overviews = [ROOT / "README.md", *(ROOT / "docs").rglob("index.md")]
    linked = {
        page: {(page.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(page.read_text())}
        for page in overviews
    }
    from_the_readme = linked[ROOT / "README.md"]
    assert set(overviews[1:]) <= from_the_readme
    assert set(PAGES[1:]) <= from_the_readme.union(*linked.values())


def test_settings_are_described_with_their_defaults() -> None:
    rows = {inline_code(c[0])[0]: inline_code(c[1]) for c in table_rows(section(SETTINGS, "## All settings"))}
    assert set(rows) == {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default: Any = field.get_default()
        if default is None or default is PydanticUndefined:
            continue  # made from other settings, or empty
        assert rows[f"{ENVIRONMENT_PREFIX}{name.upper()}"] == [
            str(default).lower() if isinstance(default, bool) else str(default)
        ], name


@pytest.mark.parametrize("text", [text for _, text in blocks("toml")], ids=[place for place, _ in blocks("toml")])
def test_configuration_files_are_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakehold.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    given = tomllib.loads(text)
    assert load_settings().model_dump(include=set(given)) == given


def test_variables_are_those_of_the_code() -> None:
    settings = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in Settings.model_fields}
    rows = list(table_rows(section(SETTINGS, "## Other variables")))
    others = {name for cells in rows for name in inline_code(cells[0])}
    of_tests = {name for cells in rows if cells[1].startswith("tests: `tests/") for name in inline_code(cells[0])}
    sources = [*(ROOT / "spark").rglob("*.py"), ROOT / ".ci" / "bootstrap"]
    in_code = {name for path in sources for name in _VARIABLE.findall(path.read_text())} - settings
    assert others - of_tests == in_code | {f"{SECRET_PREFIX}<NAME>"}
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "golden").glob("*.py"))
    assert of_tests <= set(_VARIABLE.findall(tests))
    named = {name for path in PAGES for name in _VARIABLE.findall(path.read_text())}
    assert {name for name in named if not name.startswith(SECRET_PREFIX)} <= settings | others


def test_columns_of_status_and_ingest_are_described() -> None:
    columns = section(METRICS, "## Columns of lakehold status").partition("### States")[0]
    assert [c for cells in table_rows(columns) for c in inline_code(cells[0])] == list(STATUS_COLUMNS)
    states = section(METRICS, "### States")
    assert {c for cells in table_rows(states) for c in inline_code(cells[0])} == {
        state.value for state in State if state is not State.FOREIGN
    }
    reported = section(COMMANDS, "## lakehold ingest")
    assert [c for cells in table_rows(reported) for c in inline_code(cells[0])] == list(ingest.COLUMNS)


def test_columns_of_backfill_are_described() -> None:
    described = [c for cells in table_rows(section(COMMANDS, "## lakehold backfill")) for c in inline_code(cells[0])]
    assert described == list(backfill.COLUMNS)


def test_columns_of_maintain_are_described() -> None:
    report = section(page("operate/maintenance.md"), "## The report")
    described = [c for cells in table_rows(report) for c in inline_code(cells[0])]
    assert described == list(maintain.COLUMNS)


def test_system_tables_are_those_of_the_schemas() -> None:
    text = page("reference/system-tables.md")
    overview, _, columns = text.partition("\n## Units and forms\n")
    assert {inline_code(c[0])[0] for c in table_rows(overview)} == {schema.table for schema in system_tables()}
    for schema in system_tables():
        described = list(table_rows(section(columns, f"### {schema.table.removeprefix('mz_catalog.')}")))
        # A list is described in words.
        types = [(f.name, str(f.field_type).partition("<")[0]) for f in schema.schema.fields]
        assert [(inline_code(c[0])[0], inline_code(c[1])[0]) for c in described] == types
        # The file adds the unit, and the form of JSON.
        for cells, field in zip(described, schema.schema.fields, strict=True):
            meaning = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cells[2]).replace("`", "").replace("→", "->")
            assert (field.doc or "").startswith(meaning.removesuffix(", see below."))


def test_ports_of_the_stack_are_those_of_the_code() -> None:
    ports = {int(port) for port in re.findall(r"\b1\d{4}\b", page("operate/stack.md"))}
    assert ports == set(vars(StackPorts()).values())
