"""Texts handed in as resume tokens: only a token that was given is taken."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from lakehold.errors import DefinitionError, NotReadable
from lakehold.subscribe.resume_token import Fingerprint, ResumeToken

GIVEN = ResumeToken(1_700_000_000_000, Fingerprint("a" * 16, "b" * 16, "c" * 16))


def encoded(content: str) -> str:
    return base64.urlsafe_b64encode(content.encode()).decode()


def test_a_token_survives_its_text() -> None:
    assert ResumeToken.parse(f" {GIVEN}\n") == GIVEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "é",
        str(GIVEN)[:-9],
        encoded("{}"),
        encoded("[" * 100_000),
        *(encoded(json.dumps([2, position, "a", "b"])) for position in (0, -5, True, 1.5, "1", None, 10**30)),
        *(encoded(json.dumps([version, 1, "a", "b"])) for version in (1, 3, 4)),
        encoded(json.dumps([2, 1, "a", "b", "c"])),
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        ResumeToken.parse(text)
    assert refused.value.code == "token-invalid"


def test_a_token_of_another_table_is_refused_and_one_that_names_no_table_is_taken() -> None:
    other = replace(GIVEN.fingerprint, tables="d" * 16)
    with pytest.raises(NotReadable) as refused:
        GIVEN.check_continues(other)
    assert refused.value.code == "table-replaced"
    ResumeToken.parse(encoded(json.dumps([2, 1, "a" * 16, "b" * 16]))).check_continues(other)
