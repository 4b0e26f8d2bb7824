"""The errors and reasons in the documentation are those of the code."""

from __future__ import annotations

import ast
import re

from lakehold.definitions import ObjectKind
from tests.doc_pages import ROOT, inline_code, page, section, table_rows

ERRORS = page("reference/errors.md")
_CODE = re.compile(r"[a-z]+(-[a-z]+)*")


def raised_codes() -> tuple[set[str], set[str]]:
    """Return the error codes in the code: whole ones, and patterns of those that contain a kind of object."""
    whole: set[str] = set()
    patterns: set[str] = set()
    for path in (ROOT / "spark" / "lakehold").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for value in _code_values(node):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    whole.add(value.value)
                elif isinstance(value, ast.JoinedStr):
                    patterns.add("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in value.values))
    return whole, patterns


def _code_values(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.keyword(arg="code", value=value):
            return _branches(value)
        case ast.Assign(targets=[ast.Name(id="code" | "default_code")], value=value):
            return _branches(value)
        case ast.AnnAssign(target=ast.Name(id="default_code"), value=ast.expr() as value):
            return _branches(value)
        case _:
            return []


def _branches(value: ast.expr) -> list[ast.expr]:
    return [*_branches(value.body), *_branches(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def test_error_codes_are_those_of_the_code() -> None:
    whole, patterns = raised_codes()
    assert {"type-changed", "syntax", "spark", "kafka-refused", "error"} <= whole
    assert patterns == {"{}-exists", "{}-missing", "{}-in-use"}
    in_docs = [
        code
        for cells in table_rows(section(ERRORS, "## Error codes"))
        for code in inline_code(cells[0])
        if _CODE.fullmatch(code)
    ]
    assert len(in_docs) == len(set(in_docs))
    by_kind = {pattern.format(kind.value.replace(" ", "-")) for pattern in patterns for kind in ObjectKind}
    # No object uses a subscription, so this error cannot occur.
    assert set(in_docs) == (whole | by_kind) - {"subscription-in-use"}


def test_errors_that_may_pass_are_marked() -> None:
    """Check the ↻ of codes whose class says that the same call may succeed later."""
    retryable = set(re.findall(r"`([a-z-]+)` ↻", section(ERRORS, "## Error codes")))
    found: set[str] = set()
    for path in (ROOT / "spark" / "lakehold").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "UpstreamUnavailable":
                values = [v for keyword in node.keywords for v in _code_values(keyword)]
                found |= {v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)}
    assert retryable == found | {
        "source-busy",
        "subscriber-busy",
        "view-key",
        "lease-lost",
        "commit-conflict",
        "upstream-unavailable",
        "spark-ended",
        "ingest-failed",
        "transaction-incomplete",
    }


def test_reasons_of_bad_messages_are_those_of_the_code() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "spark" / "lakehold" / "ingest").rglob("*.py"))
    in_docs = {c for cells in table_rows(section(ERRORS, "## Bad messages")) for c in inline_code(cells[0])}
    assert {reason for reason in in_docs if not re.search(rf"[\"'` ]{reason}[\"'`,]", source)} == set()
    envelope = (ROOT / "spark/lakehold/ingest/envelope/unwrap.py").read_text()
    decoded = (ROOT / "spark/lakehold/ingest/decode/decoded.py").read_text()
    listed = re.search(r"Errors: `([^`]+)`", decoded)
    assert listed is not None
    reasons = set(re.split(r",\s+", listed[1])) | set(re.findall(r"(?:THEN '|\")([a-z]+-[a-z]+)(?:'|\":)", envelope))
    assert reasons | {"malformed-line", "row-missing"} == in_docs
