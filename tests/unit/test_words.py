"""The lint of words finds faults in docstrings, comments, names and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import words


def test_a_docstring_that_begins_with_a_noun_clause_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""Which of them."""\n\n'
        'def f() -> None:\n    """What is told."""\n    # Made anew.\n\ndef g() -> None:\n    """Return it."""\n'
    )
    monkeypatch.setattr(words, "CODE", (file,))
    monkeypatch.setattr(words, "PAGES", ())
    assert [(line, text.split(":")[0]) for _, line, text in words.faults()] == [
        (1, "a docstring begins with 'Which'"),
        (3, "the docstring of f begins with 'What'"),
        (3, "'told'"),
        (5, "'anew'"),
    ]


def test_a_name_with_a_word_that_has_a_better_synonym_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "test_module.py"
    file.write_text("def test_what_a_table_holds() -> None: ...\n\nclass It:\n    def begin_anew(self) -> None: ...\n")
    monkeypatch.setattr(words, "CODE", (file,))
    monkeypatch.setattr(words, "PAGES", ())
    assert [(line, text.split(":")[0]) for _, line, text in words.faults()] == [
        (1, "a test name begins with 'what'"),
        (4, "'anew'"),
    ]


def test_an_identifier_with_a_word_that_the_glossary_replaces_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "module.py"
    file.write_text("said_until = 1\n\ndef f(begun: int) -> None: ...\n\ndef test_a_batch_that_was_begun_ends(): ...\n")
    monkeypatch.setattr(words, "CODE", (file,))
    monkeypatch.setattr(words, "PAGES", ())
    assert [(line, text.split(":")[0]) for _, line, text in words.faults()] == [
        (1, "the name said_until"),
        (3, "the name begun"),
    ]


def test_tests_are_searched_as_other_code_is() -> None:
    folders = {path.relative_to(words.ROOT).parent.as_posix() for path in words.CODE}
    assert {"spark/lakehold/cli", "dags", "tests", "tests/unit", "tests/spark", "tests/integration"} <= folders


def test_a_sentence_that_is_too_long_is_found_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"# A title\n\nShort. Also short.\n\n```sql\n{'x ' * 40}\n```\n\nNow {'word ' * 30}ends. It is told.\n"
    )
    monkeypatch.setattr(words, "CODE", ())
    monkeypatch.setattr(words, "PAGES", (page,))
    assert [(line, text.split(":")[0]) for _, line, text in words.faults()] == [
        (9, "'told'"),
        (9, "32 words in a sentence, at most 30"),
    ]
