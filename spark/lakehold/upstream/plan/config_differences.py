"""Describe how two configurations of a connector differ, without their secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_SECRET = re.compile(r"password|secret|jaas|user\.info|keystore|ssl\.key")


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    """Yield what differs between two configurations, with secrets masked."""
    for key in sorted(found.keys() | wanted.keys()):
        have, want = found.get(key), wanted.get(key)
        if have == want:
            continue
        if _SECRET.search(key):
            yield f"{key} changed"
        elif want is None:
            yield f"{key} {have} removed"
        elif have is None:
            yield f"{key} {want} added"
        else:
            yield f"{key} from {have} to {want}"
