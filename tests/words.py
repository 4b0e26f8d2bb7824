"""`make lint`: rules of lakehold's language that a program can check, in docstrings, comments and pages.

A docstring of a function begins with a verb, so that its first line can be understood alone. The name of a test is a sentence
about a thing. Some words have better synonyms. A long sentence of the documentation becomes two.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = tuple(path for folder in ("spark", "dags", "tests") for path in sorted((ROOT / folder).rglob("*.py")))
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))

_NO_VERBS = frozenset(
    word
    for words in (
        "A All An As At Before By Each Every For From How If In Its No None Not Nothing Of On One Only Some That The These",
        "This Those To Two Until Up What When Where Whether Which While Who With",
    )
    for word in words.split()
)
_NOUN_CLAUSES = frozenset({"How", "What", "Where", "Whether", "Which"})
_BETTER = {"anew": "again, or re-…", "told": "reported", "whoever": "who", "settled": "fully read, or finished"}
_NO_NAMES = {
    "asked": "requested, or name the request",
    "begun": "name what began",
    "blocked": "incomplete",
    "lacking": "missing",
    "noted": "recorded",
    "patience": "time budget",
    "perform": "apply",
    "said": "message, or reported",
    "stretch": "offset range",
}
_WORDS = re.compile(rf"\b({'|'.join(_BETTER)})\b", re.IGNORECASE)
_LONGEST_SENTENCE = 30
_BLOCK = re.compile(r"^```.*?^```$|^\|[^\n]*|^#[^\n]*|<!--.*?-->", re.MULTILINE | re.DOTALL)
_SENTENCE_END = re.compile(r"[.:?!;][*)\"]*\s+|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s")

Fault = tuple[Path, int, str]


def _of_code(path: Path, text: str) -> Iterator[Fault]:
    for node in ast.walk(ast.parse(text)):
        yield from _of_identifier(path, node)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not isinstance(node, ast.Module):
            yield from _of_name(path, node.lineno, node.name)
        docstring = ast.get_docstring(node)
        if docstring is None:
            continue
        line = getattr(node, "lineno", 1)
        first = docstring.split()[0].strip(".,:")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and first in _NO_VERBS:
            yield path, line, f"the docstring of {node.name} begins with {first!r}: begin with a verb"
        elif first in _NOUN_CLAUSES:
            yield path, line, f"a docstring begins with {first!r}: say what the thing is"
        yield from _better(path, line, docstring)
    with path.open("rb") as content:
        for token in tokenize.tokenize(content.readline):
            if token.type == tokenize.COMMENT:
                yield from _better(path, token.start[0], token.string)


def _of_name(path: Path, line: int, name: str) -> Iterator[Fault]:
    yield from _better(path, line, name.replace("_", " "))
    first = name.removeprefix("test_").partition("_")[0]
    if name.startswith("test_") and first.capitalize() in _NOUN_CLAUSES:
        yield path, line, f"a test name begins with {first!r}: begin with the thing that is tested"


def _of_identifier(path: Path, node: ast.AST) -> Iterator[Fault]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            if not name.startswith("test_"):
                for word in _NO_NAMES.keys() & {*name.split("_")}:
                    yield path, node.lineno, f"the name {name}: say {_NO_NAMES[word]} instead of {word!r}"


def _of_page(path: Path, text: str) -> Iterator[Fault]:
    prose = _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    for number, line in enumerate(prose.splitlines(), start=1):
        yield from _better(path, number, line)
    at = 0
    for sentence in _SENTENCE_END.split(prose):
        at = prose.index(sentence, at)
        words = len(re.sub(r"`[^`]*`|\]\([^)]*\)", "x", sentence).split())
        if words > _LONGEST_SENTENCE:
            start = " ".join(sentence.split()[:6])
            yield (
                path,
                prose.count("\n", 0, at) + 1,
                f"{words} words in a sentence, at most {_LONGEST_SENTENCE}: {start} …",
            )


def _better(path: Path, line: int, text: str) -> Iterator[Fault]:
    for found in _WORDS.findall(text):
        yield path, line, f"{found!r}: say {_BETTER[found.lower()]}"


def faults() -> list[Fault]:
    """Return the faults, by file and line."""
    of_code = [fault for path in CODE for fault in _of_code(path, path.read_text())]
    return [*of_code, *(fault for path in PAGES for fault in _of_page(path, path.read_text()))]


if __name__ == "__main__":
    found_ = faults()
    for path_, line_, message in found_:
        print(f"{path_.relative_to(ROOT)}:{line_}: {message}")
    sys.exit(bool(found_))
