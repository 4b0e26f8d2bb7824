"""Text for people: characters that move the cursor, change the order of letters or have no width are shown by their codes."""

from __future__ import annotations

import re

_MISLEADING = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Control characters except tabs and newlines, marks of direction, and what has no width; not the joiners inside emoji."""


def printable(text: str) -> str:
    """Write such characters in a text by their codes, as JSON and SQL do."""
    return _MISLEADING.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
