"""Statements as text files: input, `----`, the statement it becomes or the error with its caret.

Queries to subscribe to, in `queries/`, are shown with « » around each table and the alias it must keep, and with «+» where
columns can be inserted. Queries in `plain/` are shown as the plan that this process can run itself, or as Spark's.

A case ends at a blank line. `LAKEHOLD_REWRITE=1 pytest tests/golden` writes the parser's actual results: read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pprint import pformat

import pytest

from lakehold.errors import StatementError
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.query.queries import parse_query
from lakehold.sql.text.dialect import split
from lakehold.subscribe.statement import TableReference
from tests.golden_cases import SEPARATOR, cases

FILES = sorted(Path(__file__).parent.glob("sql/*.txt"))
QUERIES = sorted(Path(__file__).parent.glob("queries/*.txt"))
PLAIN = sorted(Path(__file__).parent.glob("plain/*.txt"))


def outcome(sql: str) -> str:
    try:
        return "\n".join(pformat(parsed.statement, width=118) for parsed in parse_script(sql))
    except StatementError as error:
        return f"error: {error}"


def marked(sql: str) -> str:
    def shown(table: TableReference) -> TableReference:
        return replace(table, full_name=f"{table.full_name} AS {table.implied_alias}") if table.implied_alias else table

    lines = []
    try:
        for written in split(sql):
            query = parse_query(written, repeatable=True)
            tables = tuple(shown(table) for table in query.tables)
            lines.append(
                replace(query, tables=tables).over({t.full_name: f"«{t.full_name}»" for t in tables}, columns="«+»")
            )
    except StatementError as error:
        return f"error: {error}"
    return "\n".join(lines)


def answered(sql: str) -> str:
    found = (parse_query(written, repeatable=True).plain for written in split(sql))
    return "\n".join("Spark's" if plain is None else pformat(plain, width=118) for plain in found)


def check(path: Path, outcome: Callable[[str], str]) -> None:
    found = [(sql, outcome(sql)) for sql, _ in cases(path.read_text())]
    if os.environ.get("LAKEHOLD_REWRITE"):
        path.write_text("\n\n".join(f"{sql}{SEPARATOR}\n{result}" for sql, result in found) + "\n")
    assert cases(path.read_text()) == found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_statements_and_errors_match_their_golden_files(path: Path) -> None:
    check(path, outcome)


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_tables_of_queries_match_their_golden_files(path: Path) -> None:
    check(path, marked)


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_queries_that_need_no_engine_match_their_golden_files(path: Path) -> None:
    check(path, answered)


def test_golden_cases_exist() -> None:
    assert len(FILES) > 1
    assert len(PLAIN) > 1
    assert len(QUERIES) > 1
