"""The Python API page describes every public member of a lake, with the signatures of the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from enum import Enum
from typing import Any

import pytest

from lakehold.holds.commands import HoldCommands
from lakehold.holds.roles import RoleCommands
from lakehold.ingest.backfill import BackfillReport
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake, connect
from lakehold.maintenance.maintain import MaintenanceReport
from lakehold.publish.deliveries import Delivery
from lakehold.publish.durable import DurableClient
from lakehold.publish.publisher import PublishReport
from lakehold.quality.verdict import Verdict
from lakehold.sql.result import Result
from lakehold.subscribe.output_batches import Batch
from lakehold.verify.comparison import Comparison
from tests.doc_pages import inline_code, page, section, table_rows

PAGE = page("reference/python-api.md")
OWNERS: dict[str, type] = {
    "lake": Lake,
    "lake.holds": HoldCommands,
    "lake.roles": RoleCommands,
    "client": DurableClient,
    "delivery": Delivery,
    "batch": Batch,
}
MADE_BY_INIT = {"settings", "catalog", "definitions", "batches", "tables"}
_CALL = re.compile(r"(?P<owner>[a-z]+(\.[a-z]+)?)\.(?P<name>[a-z_]+)(?P<arguments>\(.*\))?")
CALLS = [
    found
    for cells in table_rows(PAGE)
    for code in inline_code(cells[0])
    if (found := _CALL.fullmatch(code)) is not None
]


def signature(function: Any) -> str:
    """Return the parameters as a caller sees them: without `self` and types."""
    shown: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in shown):
            shown.append("*")
        default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        shown.append(f"{stars}{parameter.name}" + ("" if default is parameter.empty else f"={default!r}"))
    return f"({', '.join(shown)})"


def public(owner: type) -> set[str]:
    """Return the public names of a class and of those that it extends."""
    return {name for each in owner.mro()[:-1] for name in vars(each) if not name.startswith("_")}


def test_every_public_member_of_a_lake_is_described() -> None:
    described = {found["name"] for found in CALLS if found["owner"] == "lake"}
    parts = {found["owner"].removeprefix("lake.") for found in CALLS if found["owner"].startswith("lake.")}
    assert described | parts == public(Lake) | MADE_BY_INIT


def test_attributes_of_a_lake_are_those_that_it_sets() -> None:
    source = inspect.getsource(Lake.__init__)
    assert set(re.findall(r"self\.([a-z]\w*) =", source)) == MADE_BY_INIT


@pytest.mark.parametrize("owner", ["client", "delivery"])
def test_every_method_of_a_durable_client_is_described(owner: str) -> None:
    assert {found["name"] for found in CALLS if found["owner"] == owner} == public(OWNERS[owner])


@pytest.mark.parametrize("found", CALLS, ids=lambda found: found[0])
def test_calls_have_the_signature_of_the_code(found: re.Match[str]) -> None:
    owner = OWNERS[found["owner"]]
    if found["arguments"] is not None:
        assert found["arguments"] == signature(getattr(owner, found["name"]))
    elif found["name"] not in MADE_BY_INIT:
        assert not inspect.isfunction(getattr(owner, found["name"]))


def test_connect_is_described() -> None:
    opening = section(PAGE, "## Open a lake")
    assert f"`lakehold.connect{signature(connect)}`" in opening
    described = {code for cells in table_rows(opening) for code in inline_code(cells[0])}
    assert described == {name.replace("settings", "**settings") for name in inspect.signature(connect).parameters}


@pytest.mark.parametrize(
    "report",
    [BatchReport, BackfillReport, PublishReport, MaintenanceReport, Verdict, Comparison, Result],
    ids=lambda each: each.__name__,
)
def test_every_field_of_a_report_is_described(report: Any) -> None:
    (table,) = re.findall(rf"^\| `{report.__name__}` \|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    described = {code for line in table.splitlines() for code in inline_code(line.split("|")[1])}
    own = {name for name in vars(report) if isinstance(vars(report)[name], property)}
    assert {field.name for field in fields(report)} <= described
    assert described <= {field.name for field in fields(report)} | own
