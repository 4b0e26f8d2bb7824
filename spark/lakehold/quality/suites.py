"""Suites in files: `<namespace.table>.json` in Great Expectations' own format (1.x), read and written without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from lakehold.errors import DefinitionError, bad_byte
from lakehold.file_names import file_name_of

GENERATED = "generated"
"""Origin of a suite without a file."""

EQUALS_DATABASE = "expect_table_to_equal_its_database"
"""The type of the expectation that compares a table with its database, row by row."""


@dataclass(frozen=True)
class Expectation:
    """One expectation: its type in snake case, its arguments, and people's notes on it."""

    type: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] | None = field(default_factory=dict)
    severity: str = "critical"


@dataclass(frozen=True)
class Suite:
    """The expectations on a table; `origin` is the suite's file, or `generated`."""

    table: str
    expectations: tuple[Expectation, ...]
    origin: str = GENERATED


@dataclass(frozen=True)
class _SuiteFile:
    """The fields of a file that lakehold reads; Great Expectations writes more, such as ids."""

    name: str
    expectations: Annotated[tuple[Expectation, ...], Field(min_length=1)]


_SUITE_FILE = TypeAdapter(_SuiteFile)


def suite_path(directory: Path, full_name: str) -> Path:
    """Return the path of a table's suite."""
    return directory / f"{file_name_of(full_name)}.json"


def read_suite(directory: Path | None, full_name: str) -> Suite | None:
    """Read the suite of a table from its file in `directory`; None if it has no file.

    Raises:
        DefinitionError: The file cannot be read, or is not a suite of this table.
    """
    if directory is None:
        return None
    path = suite_path(directory, full_name)
    try:
        text = path.read_text(encoding="utf-8-sig")
        json.loads(text)  # whose errors name line and column
        file = _SUITE_FILE.validate_json(text)
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise invalid(str(path), f"Line {error.lineno}, column {error.colno} is not JSON: {error.msg}.") from error
    except ValidationError as error:
        raise invalid(str(path), _first_reason(error)) from error
    except UnicodeDecodeError as error:
        raise invalid(str(path), f"It is not UTF-8. {bad_byte(error)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise invalid(str(path), f"{error}.") from error
    if file.name != full_name:
        raise invalid(str(path), f'Its name is "{file.name}", expected is the table\'s: "{full_name}".')
    return Suite(full_name, file.expectations, str(path))


def write_suite(directory: Path, suite: Suite) -> Path:
    """Write `suite` to the file of its table.

    Raises:
        DefinitionError: The file already exists: somebody may have edited it.
    """
    path = suite_path(directory, suite.table)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(suite_text(suite))
    except FileExistsError as error:
        raise DefinitionError(
            f'the suite of table "{suite.table}" already exists',
            code="suite-exists",
            detail=f'The file is "{path}".',
            hint="Edit it, or remove it first.",
        ) from error
    except OSError as error:
        raise DefinitionError(
            f'the suite of table "{suite.table}" cannot be written',
            code="suite-invalid",
            detail=f'The file is "{path}": {error.strerror}.',
        ) from error
    return path


def suite_text(suite: Suite) -> str:
    """Return the text of a suite's file."""
    expectations = [
        {"type": e.type, "kwargs": dict(e.kwargs), "meta": dict(e.meta or {}), "severity": e.severity}
        for e in suite.expectations
    ]
    whole: dict[str, Any] = {"name": suite.table, "expectations": expectations, "meta": {}, "notes": None}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def place_of(place: int, expectation: Expectation) -> str:
    """Describe the place of an expectation in its file; `place` counts from 0."""
    return f'Expectation {place + 1}, "{expectation.type}"'


def invalid(origin: str, detail: str, hint: str = "") -> DefinitionError:
    """Return the error of a suite that cannot be used; `origin` is its file."""
    return DefinitionError(
        "the suite cannot be used",
        code="suite-invalid",
        detail=f'The file is "{origin}". {detail}',
        hint=hint or "Correct the file, or remove it: a suite is then generated from the table.",
    )


def _first_reason(error: ValidationError) -> str:
    first = error.errors()[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    return f'At "{place}": {first["msg"]}.' if place else f"{first['msg']}."
