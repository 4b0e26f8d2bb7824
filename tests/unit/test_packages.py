"""The wheel and the sdist have what a release needs, and nothing else."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.built_packages import Packages, committed_files, wanted_in_wheel
from tests.doc_pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    return Packages.built(tmp_path_factory.mktemp("dist"))


def test_the_wheel_has_the_package_its_definitions_and_nothing_else(packages: Packages) -> None:
    wanted = wanted_in_wheel()
    assert {
        "lakehold/py.typed",
        "lakehold/overview/page.html.j2",
        "lakehold/iceberg_schemas/mz_catalog.mz_holds.json",
        "lakehold/expectations/example/shop.orders.json",
        "lakehold/demo/shop.recorded.sql",
    } <= wanted
    assert packages.files_of_wheel() == wanted


def test_the_sdist_has_all_that_is_committed_and_nothing_else(packages: Packages) -> None:
    assert packages.files_of_sdist() == committed_files() | {"PKG-INFO"}


def test_the_wheel_is_for_the_pythons_and_extras_of_the_project(packages: Packages) -> None:
    metadata = packages.metadata
    assert (metadata.name, str(metadata.version)) == ("lakehold", PROJECT["version"])
    assert str(metadata.requires_python) == ",".join(sorted(PROJECT["requires-python"].split(",")))
    assert set(metadata.provides_extra or ()) == set(PROJECT["optional-dependencies"])
    assert metadata.description == (ROOT / "README.md").read_text()
    assert packages.tags["Tag"] == "py3-none-any"


def test_the_version_is_in_one_place() -> None:
    assigned = re.compile(rf"""\b(?<!\.)__version__|["'=]{re.escape(PROJECT["version"])}["']""")
    code = [ROOT / name for name in committed_files() if name.startswith(("spark/lakehold/", "dags/"))]
    assert [path for path in code if path.suffix == ".py" and assigned.search(path.read_text())] == []
