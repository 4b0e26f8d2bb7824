"""Words of Materialize's statements that lakehold's lack, each with what to write instead: hints of syntax errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OF_A_TABLE = "it belongs to a table: CREATE TABLE … FROM SOURCE …"
_ONE_FORMAT = "write FORMAT once: it is that of keys and values"

IN_SOURCE: Final[Mapping[str, str]] = {
    "ENVELOPE": f"{_OF_A_TABLE} ENVELOPE …",
    "INCLUDE": f"{_OF_A_TABLE} INCLUDE … ENVELOPE …",
    "KEY": _ONE_FORMAT,
    "VALUE": _ONE_FORMAT,
    "FOR": "write CREATE TABLE … FROM SOURCE … ENVELOPE … for each table",
    "IN": "leave the cluster out: lakehold has none",
    "EXPOSE": "leave it out: lakehold status shows the progress of sources",
}
"""First words of clauses of CREATE SOURCE."""

IN_FEED: Final[Mapping[str, str]] = {
    "REFERENCE": "write TABLE and its name in the database, in quotes: (TABLE 'schema.table')"
}
"""Words after FROM SOURCE."""
