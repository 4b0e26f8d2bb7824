"""Comparison of pages with printed output, which must see every block of a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doc_pages import ROOT
from tests.runnable_pages import PAGES, Part, Standins, parts

PAGE = """# A page
<!-- test: something happens -->
```sql
SELECT 1;
```

Words.

```text
1
```

```text
──▶
```

<!-- live: PostgreSQL runs -->
<!-- checked by: tests/a_test.py -->
```sh
lakehold status
```

```text
unseen
```
"""


def blocks() -> Iterator[tuple[str, Part]]:
    """Yield all blocks of all pages, each with its place."""
    for page in PAGES:
        for part in parts(page.read_text()):
            if part.kind != "step":
                yield f"{page.relative_to(ROOT)}:{part.line}", part


def test_every_block_runs_or_a_test_checks_it() -> None:
    unseen = [
        place
        for place, part in blocks()
        if not (part.runs or part.is_output or part.is_picture or part.mark or part.kind == "toml")
    ]
    assert unseen == []


def test_a_test_that_checks_a_block_reads_its_page() -> None:
    checked = [(place, part.note) for place, part in blocks() if part.mark == "checked by"]
    assert checked
    nominal = [
        (place, test)
        for place, test in checked
        if Path(place.partition(":")[0]).name not in Path(ROOT, test).read_text()
    ]
    assert nominal == []


def test_blocks_and_steps_come_in_order() -> None:
    found = [(part.kind, part.text, part.is_live, part.mark or part.is_output) for part in parts(PAGE)]
    assert found == [
        ("step", "something happens", False, False),
        ("sql", "SELECT 1;\n", False, False),
        ("text", "1\n", False, True),
        ("text", "──▶\n", False, False),
        ("step", "PostgreSQL runs", True, False),
        ("sh", "lakehold status\n", True, "checked by"),
        ("text", "unseen\n", True, False),
    ]


def test_a_mark_without_a_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="no block follows the comment above line 3"):
        list(parts("<!-- checked by: tests/a_test.py -->\nWords.\n```sql\nSELECT 1;\n```\n"))


@pytest.mark.parametrize("text", ["- item\n  ```sql\n  SELECT 1;\n  ```\n", "```sql\nSELECT 1;\n"])
def test_a_block_that_would_not_be_seen_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="indented or has no end"):
        list(parts(text))


def test_a_timestamp_stands_for_one_that_was_printed() -> None:
    standins = Standins()
    shown = " mz_timestamp  ┃ id\n━━━━━╇━━━\n1795624026593  │  1\n1795624026594  │  1\n"
    printed = " mz_timestamp ┃ id\n━━╇━━\n1800000000001 │ 1\n1800000000007 │ 1\n"
    assert standins.matches(shown, printed.replace("1800", "1799"))
    assert standins.applied("AS OF 1795624026594") == "AS OF 1799000000007"
    assert not standins.matches("1795624026594\n", "1799000000001\n")
    with pytest.raises(KeyError):
        standins.applied("AS OF 1795624026595")


def test_one_timestamp_is_not_two() -> None:
    assert not Standins().matches("1795624026593 1795624026593\n", "1795624026593 1795624026594\n")
    assert Standins().matches("1795624026593 1795624026593\n", "1795624026594 1795624026594\n")


def test_dots_stand_for_skipped_text() -> None:
    assert Standins().matches("first\n…\nlast …\n", "first\nsecond\nthird\nlast one\n")
    assert not Standins().matches("first\nlast\n", "first\nsecond\nlast\n")
