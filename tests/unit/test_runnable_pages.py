"""Comparison of pages with printed output, which must see every block of a page."""

from __future__ import annotations

import pytest

from tests.runnable_pages import Standins, parts

PAGE = """# A page
<!-- test: something happens -->
```sql
SELECT 1;
```

```text
1
```

Words.

```text
a picture
```
"""


def test_blocks_and_comments_come_in_order() -> None:
    found = [(part.kind, part.text, part.is_output) for part in parts(PAGE)]
    assert found == [
        ("test", "something happens", False),
        ("sql", "SELECT 1;\n", False),
        ("text", "1\n", True),
        ("text", "a picture\n", False),
    ]


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
