"""The cases of `tests/golden/types/*.txt`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN_OPTIONS = (
    "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', 'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""Options of `to_json` for the values of cases."""

DIRECTORY = Path(__file__).parent / "golden" / "types"


@dataclass
class TypeCase:
    """A schema, its types in the lake, and (payload, value as JSON text) pairs."""

    name: str
    schema: Any
    iceberg: str = ""
    spark: str = ""
    values: list[tuple[Any, str]] = field(default_factory=list)


def read_cases(file: str) -> list[TypeCase]:
    """Read the cases of a file, named by their first lines."""
    cases: list[TypeCase] = []
    for number, line in enumerate((DIRECTORY / file).read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("-> "):
            cases[-1].iceberg, cases[-1].spark = line.removeprefix("-> ").split(" | ")
        elif " => " in line:
            payload, value = line.split(" => ")
            cases[-1].values.append((json.loads(payload), value))
        else:
            cases.append(TypeCase(f"line{number}", json.loads(line)))
    return cases
