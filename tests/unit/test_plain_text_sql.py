"""Text enters Spark's SQL in one module: other modules put only constants of the code between single quotes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "spark" / "lakehold"
WRITE_SQL = ("catalog", "ingest", "maintenance", "publish", "quality", "subscribe", "timeline", "holds")
PATTERNS = {"decimals.py": {"schema", "digits", "zero", "with_exponent"}, "iso_text.py": {"form", "one"}}
"""By module, the variables that hold parts of SQL written in the module itself."""


ESCAPING = re.compile(r"""replace\((?:"'"|"`", "``"|'`', '``')""")


def quoted_values(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    """Yield line and expression of each `'{expression}'` in an f-string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for before, value, after in zip(node.values, node.values[1:], node.values[2:], strict=False):
                if isinstance(value, ast.FormattedValue) and _ends(before, "'") and _begins(after, "'"):
                    yield node.lineno, value.value


def _ends(part: ast.expr, text: str) -> bool:
    return (
        isinstance(part, ast.Constant) and str(part.value).endswith(text) and not str(part.value).endswith(f"X{text}")
    )


def _begins(part: ast.expr, text: str) -> bool:
    return isinstance(part, ast.Constant) and str(part.value).startswith(text)


def is_constant(value: ast.expr, allowed: set[str]) -> bool:
    """Return whether a value is `_PATTERN`, `Op.DELETE`, `Op.DELETE.value`, or a variable that the module fills itself."""
    match value:
        case ast.Name(id=name):
            return name.isupper() or name in allowed
        case ast.Attribute(value=ast.Name(id=of), attr=name):
            return of[:1].isupper() and name.isupper()
        case ast.Attribute(value=inner, attr="value"):
            return is_constant(inner, allowed)
        case _:
            return False


def is_message(line: str) -> bool:
    """Return whether a line is part of a message for people, which quotes names."""
    return any(word in line for word in ("message", "hint", "error", "raise", "found '"))


def test_no_value_is_quoted_by_hand() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for folder in WRITE_SQL
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for line, value in quoted_values(ast.parse(path.read_text()))
        if not is_constant(value, PATTERNS.get(path.name, set()))
        and not is_message(path.read_text().splitlines()[line - 1])
    ]
    assert found == [], "use lakehold.spark_sql.literal"


def test_nothing_escapes_quotes_by_itself() -> None:
    """Skip lakehold's own statements (`render`) and those for a captured database, which are not Spark's SQL."""
    own = {PACKAGE / "spark_sql.py", PACKAGE / "sql" / "render.py"}
    found = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in own and "upstream" not in path.parts and ESCAPING.search(path.read_text())
    ]
    assert found == [], "use lakehold.spark_sql"
