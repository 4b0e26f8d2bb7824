"""The grammar summary in reference/sql.md agrees with the parser."""

from __future__ import annotations

import ast
import re

import pytest

from lakehold.sql.parse import statement
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.statements import ForSpark, Statement
from tests import sql_grammar
from tests.doc_pages import ROOT
from tests.sql_grammar import Form

FORMS = sql_grammar.forms()
KEYWORDS = re.compile(r"[A-Z]{2,}( [A-Z]{2,})*")
OF_QUERIES = {"FROM", "JOIN", "VALUES", "VERSION"}
"""Words that the parser reads inside Spark's syntax: the beginning of a query, and times of one table."""


def test_the_page_has_the_summary() -> None:
    assert sql_grammar.written() == sql_grammar.summary(), "python -m tests.sql_grammar writes it"


def test_every_statement_of_the_parser_has_a_form() -> None:
    assert {words for form in FORMS for words in form.productions} == {
        " ".join(words) for words in statement._PRODUCTIONS
    }


def is_foreign(statement: Statement) -> bool:
    return isinstance(statement, ForSpark) and not statement.changes


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.text.splitlines()[0])
def test_every_statement_that_a_form_allows_is_read(form: Form) -> None:
    statements = sql_grammar.variants(form.text)
    assert statements
    for text in statements:
        script = parse_script(text)
        assert not any(is_foreign(parsed.statement) for parsed in script), text


@pytest.mark.parametrize("words", [" ".join(words) for words in statement._EXPLAINED])
def test_every_explained_statement_has_a_sample(words: str) -> None:
    assert any(sample.startswith(words) for sample in sql_grammar.SAMPLES["explained"])


def test_a_form_that_the_parser_does_not_read_is_found() -> None:
    wrong, *_ = sql_grammar.variants("ALTER SOURCE name MEND")
    with pytest.raises(Exception, match="expected REPAIR, RESNAPSHOT, SET or RESET"):
        parse_script(wrong)


def test_every_keyword_of_the_parser_is_in_the_summary() -> None:
    written = set(re.findall(r"[A-Z]{2,}", sql_grammar.summary()))
    for path in (ROOT / "spark" / "lakehold" / "sql").glob("parse*.py"):
        if path.stem == "parse_foreign":
            continue
        constants = [
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEYWORDS.fullmatch(node.value)
        ]
        words = {word for phrase in constants for word in phrase.split()}
        assert words - OF_QUERIES <= written, path.name
