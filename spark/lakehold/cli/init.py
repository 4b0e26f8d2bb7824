"""`lakehold init`: files to begin with, which work as they are.

The command `lakehold` always imports this module, so that the command below imports what only it needs.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from lakehold.cli.command_output import open_output, reported
from lakehold.cli.option_types import Format
from lakehold.errors import LakeholdError
from lakehold.spark_sql import literal
from lakehold.sql.result import Result

COLUMNS = ("file", "content")
_ORDERS = (
    (1, {"id": 1, "status": "placed", "total": "19.90"}),
    (2, {"id": 2, "status": "placed", "total": "7.50"}),
    (1, {"id": 1, "status": "paid", "total": "19.90"}),
)


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to write them.")] = Path(),
    *,
    output_format: Format = None,
) -> None:
    """Write settings, an example and what the DAGs need.

    The example runs as it is: it brings recorded messages into a table. Existing files are never overwritten.
    """
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        written = _contents(directory.resolve())
        _write(directory, {name: text for name, (text, _) in written.items()})
        output.result(Result(COLUMNS, [(str(directory / name), content) for name, (_, content) in written.items()]))
        where = f"cd {shlex.quote(str(directory))}; " if directory != Path() else ""
        output.notice(f"try it: {where}lakehold sql -f shop.sql; lakehold ingest shop; lakehold status")


def _contents(directory: Path) -> dict[str, tuple[str, str]]:
    """Return the text of each file and what it is, by its path in `directory`, which is absolute."""
    values = {
        "warehouse": json.dumps(str(directory / "lake"), ensure_ascii=False),
        "messages": literal(str(directory / "messages")),
        "config": shlex.quote(str(directory / "lakehold.toml")),
    }

    def filled(name: str) -> str:
        return Template(files("lakehold.cli").joinpath("new_project", name).read_text("utf-8")).substitute(values)

    return {
        "lakehold.toml": (filled("lakehold.toml"), "settings of the lake"),
        "shop.sql": (filled("shop.sql"), "an example: a source and a table"),
        "messages/orders.jsonl": (_messages(), "recorded messages for the example"),
        "airflow.env": (filled("airflow.env"), "settings of the DAGs"),
    }


def _messages() -> str:
    lines = (
        {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": 1_795_000_000_000 + offset,
            **_body(key, value),
        }
        for offset, (key, value) in enumerate(_ORDERS)
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


def _body(key: int, value: dict[str, object]) -> dict[str, str]:
    return {
        name: base64.b64encode(json.dumps(part).encode()).decode()
        for name, part in (("key", {"id": key}), ("value", value))
    }


def _write(directory: Path, texts: dict[str, str]) -> None:
    """Write all files or none.

    Raises:
        LakeholdError: One of them exists, or a file in place of a directory, or the directory cannot be written.
    """
    paths = [directory / name for name in texts]
    # A link counts also if its target does not exist.
    existing = [path for path in paths if os.path.lexists(path)]
    existing += {path.parent for path in paths if os.path.lexists(path.parent) and not path.parent.is_dir()}
    if existing:
        in_the_way = ", ".join(os.path.relpath(path, directory) for path in existing)
        raise LakeholdError(
            f'file "{existing[0]}" exists',
            code="file-exists",
            detail=f"Nothing was written. In the way: {in_the_way}.",
            hint="Choose another directory, or move the files away.",
        )
    try:
        for name, text in texts.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise LakeholdError(
            f'file "{error.filename}" cannot be written', code="usage", detail=f"{error.strerror}."
        ) from error
