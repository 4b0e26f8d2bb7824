"""The release in `dist`: its changelog, and its wheel in a new environment. `make release` builds it first.

Its name keeps it out of `make test`, which builds both packages too, and checks their content.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.built_packages import Packages, new_environment, run, wanted_in_wheel
from tests.doc_pages import ROOT

PACKAGES = Packages.within(ROOT / "dist")
VERSION = str(PACKAGES.metadata.version)


def test_the_wheel_has_what_is_committed() -> None:
    assert PACKAGES.files_of_wheel() == wanted_in_wheel()


def test_the_wheel_runs_in_a_new_environment(tmp_path: Path) -> None:
    programs = new_environment(tmp_path, sys.executable, str(PACKAGES.wheel))
    assert run(str(programs / "lakehold"), "--version", cwd=tmp_path) == f"lakehold {VERSION}\n"
    run(
        str(programs / "python"),
        "-c",
        "import lakehold.lake, lakehold.state.schema_files as s; s.system_tables()",
        cwd=tmp_path,
    )


def test_the_changelog_begins_with_this_release() -> None:
    first = re.search(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert re.fullmatch(rf"## \[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d", first[0]), (
        f"the first heading of CHANGELOG.md is {first[0]!r}: give it the version of pyproject.toml, {VERSION}, and the date"
    )
