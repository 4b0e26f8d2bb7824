"""Reads global transaction ids of MySQL. Pure."""

from __future__ import annotations

import re

_GTIDS = re.compile(r"([0-9a-f]{8}-[0-9a-f-]{27})((?::[0-9]+(?:-[0-9]+)?)+)")


def last_gtid(executed: str, server: str) -> str:
    """Return the last of some transactions of MySQL, preferably of one server; empty: there are none.

    In a group of servers no transaction has the server's own id.
    """
    last = {name: max(map(int, re.split("[:-]", numbers[1:]))) for name, numbers in _GTIDS.findall(executed)}
    name = server if server in last else next(iter(last), None)
    return "" if name is None else f"{name}:{last[name]}"
