"""Names of objects as SQL: an object's name is quoted only where a statement could not be read otherwise."""

from __future__ import annotations

import re

from lakehold.spark_sql import quoted

NOT_A_NAME = frozenset({"AS", "ENVELOPE", "EXISTS", "FROM", "NOT", "ON", "SELECT", "TO", "USING", "WITH"})
"""Words that open a clause: where an object's name belongs they mean that the name was forgotten."""

_WORDS_OF_QUERIES = """
    ALTER AND BETWEEN CREATE CROSS DESCRIBE DISTINCT DROP ELSE EXCEPT FETCH FOR GLOB GRANT HAVING ILIKE INNER INSERT INTERSECT
    INTO JOIN LATERAL LIKE MINUS NOTNULL OR OUTER PARTITIONED_BY QUALIFY REGEXP RETURNING REVOKE RLIKE ROLLBACK SERDEPROPERTIES
    TABLESAMPLE THEN UNCACHE UNION VALUES WHEN WHERE XOR
"""
"""Words that are no name of a table in a query, unless they are quoted."""

_QUOTED = NOT_A_NAME.union(_WORDS_OF_QUERIES.split())
_OBJECT_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def object_text(name: str) -> str:
    """Write the name of an object as SQL, in backquotes where it needs them."""
    if _OBJECT_NAME.fullmatch(name) and name.upper() not in _QUOTED:
        return name
    return quoted(name)


def full_name_text(full_name: str) -> str:
    """Write `namespace.name` as SQL, each part in backquotes where it needs them."""
    return ".".join(object_text(part) for part in full_name.split("."))
