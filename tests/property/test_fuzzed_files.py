"""A round of damaged files; `make fuzz` tries more."""

from __future__ import annotations

from random import Random

from tests.fuzz import files


def test_each_line_of_damaged_files_is_a_message_or_reported() -> None:
    tried = next(files.tried(Random(1)))
    assert tried.faults == ()
    assert tried.counts["records"] > tried.inputs / 2
    assert tried.counts["malformed"] > tried.inputs / 10
    assert tried.counts["repeats"]
