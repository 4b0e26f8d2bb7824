"""The wheel in new environments of each supported Python, with each extra: `make test-pythons`.

Its name keeps it out of `make test`: each environment takes a minute, and the first ones a download of Spark, too.
A Python that does not run from the PATH is skipped. Those of pyenv do with PYENV_VERSION=3.11.7:3.12.1:3.13.0, or what there is.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.built_packages import Packages, new_environment, run
from tests.doc_pages import ROOT

PYTHONS = ("3.11", "3.12", "3.13")
USES_OF_EXTRAS = {
    "": "import lakehold.lake",
    "airflow": "import lakehold.orchestration.lakes, lakehold.orchestration.plugin",
    "quality": "import great_expectations, lakehold.quality.suite_run",
}
"""Python that needs what the extra brings."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Packages.built(tmp_path_factory.mktemp("dist")).wheel


def environment(folder: Path, python: str, *install: str) -> Path:
    """Make an environment of a Python that runs from the PATH."""
    program = f"python{python}"
    try:
        subprocess.run([program, "-c", ""], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip(f"{program} does not run from the PATH")
    return new_environment(folder, program, *install)


def show_demo(programs: Path, folder: Path) -> None:
    shown = run(str(programs / "lakehold"), "demo", "--directory", "demo", cwd=folder)
    assert "equal to PostgreSQL: customers 98 rows, orders 198 rows, order_items 537 rows" in shown


def test_each_python_that_the_package_admits_is_tried() -> None:
    admitted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert re.fullmatch(r">=3\.11,<3\.14", admitted)
    assert PYTHONS == ("3.11", "3.12", "3.13")


@pytest.mark.parametrize("extra", USES_OF_EXTRAS)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_demo_runs_with_the_newest_versions(python: str, extra: str, wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path, python, f"{wheel}[{extra}]" if extra else str(wheel))
    run(str(programs / "python"), "-c", USES_OF_EXTRAS[extra], cwd=tmp_path)
    show_demo(programs, tmp_path)


def test_the_demo_runs_with_the_oldest_versions(wheel: Path, tmp_path: Path) -> None:
    show_demo(environment(tmp_path, PYTHONS[0], "--resolution", "lowest-direct", str(wheel)), tmp_path)
