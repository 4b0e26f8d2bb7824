from __future__ import annotations

import re
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement

from tests.built_packages import committed_files

ROOT = Path(__file__).parents[2]
LONGEST_MODULE_LINES = 400

LOCK = (ROOT / "requirements.lock").read_text()
LOCKED = dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==(\S+)", LOCK, flags=re.MULTILINE))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# The namespace of every pom is an address that no program contacts.
REGISTRY = re.compile(
    r"https?://(?!maven\.apache\.org/)[^\s/\"'<]*(?:artifactory|crates|maven|mirror|nexus|npm|pypi|pythonhosted)", re.I
)
OF_ONE_MACHINE = re.compile(re.escape(str(ROOT)) + r"\b|(?<![\w.}])/(?:root|home/\w+|Users/\w+)/")


def project_files() -> list[Path]:
    """Return every file that is committed or could be."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    return [ROOT / name for name in sorted(committed_files())]


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in project_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_module_is_too_long() -> None:
    line_counts = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in project_files()
        if path.suffix == ".py"
    }
    assert {name: count for name, count in line_counts.items() if count > LONGEST_MODULE_LINES} == {}


def test_each_folder_of_code_has_a_readme_with_purpose_imports_and_first_steps() -> None:
    folders = {path.parent for path in project_files() if path.name == "__init__.py"}
    assert ROOT / "spark" / "lakehold" / "ingest" in folders
    heads = ("**Does:** ", "**May import:** ", "**Start here:** ")
    for folder in sorted(folders):
        readme = (folder / "README.md").read_text()
        assert [head for head in heads if f"\n{head}" not in readme] == [], folder
        assert len([line for line in readme.splitlines() if not line.startswith("|")]) <= 15, (
            f"{folder}: besides tables"
        )
        for name in re.findall(r"`(\w+\.py)`", readme):
            assert list(folder.rglob(name)), f"{folder}: {name}"


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    assert lines_matching(REGISTRY) == []
    assert lines_matching(OF_ONE_MACHINE) == []


def test_the_patterns_match_their_targets() -> None:
    scheme = "https:" + "//"  # apart, so that this file does not match
    assert REGISTRY.search(f"<url>{scheme}maven.example/releases</url>")
    assert REGISTRY.search(f"--index-url {scheme}user@pypi.example:8080/simple")
    assert not REGISTRY.search('xmlns="http://maven.apache.org/POM/4.0.0"')
    assert OF_ONE_MACHINE.search(f"{ROOT}/spark")
    assert OF_ONE_MACHINE.search("cat " + "/".join(["", "home", "someone", "file"]))
    assert not OF_ONE_MACHINE.search("${HOME}/file of https://example.com/home/page/")


def test_the_lock_names_packages_and_no_registry() -> None:
    assert "://" not in LOCK
    assert not re.search(r"^--(?!hash)", LOCK, flags=re.MULTILINE)
    assert LOCK.count("==") <= LOCK.count("--hash=sha256:")


def test_the_locked_versions_are_in_the_ranges_of_pyproject() -> None:
    project = PYPROJECT["project"]
    required = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    requirements = [Requirement(line) for line in [*required, *PYPROJECT["dependency-groups"]["dev"]]]
    assert "pyiceberg" in {requirement.name for requirement in requirements}
    outside = {r.name: LOCKED.get(r.name) for r in requirements if not r.specifier.contains(LOCKED.get(r.name, ""))}
    assert outside == {}


def test_spark_is_the_version_that_its_jars_are_for() -> None:
    pom = ElementTree.parse(ROOT / "spark/lakehold/artifacts/sets/spark/pom.xml")
    versions = {
        dependency.findtext("{*}artifactId"): dependency.findtext("{*}version")
        for dependency in pom.iterfind("{*}dependencies/{*}dependency")
    }
    assert LOCKED["pyspark"] == metadata.version("pyspark")
    assert versions["spark-sql-kafka-0-10_2.13"] == versions["spark-avro_2.13"] == LOCKED["pyspark"]


def test_nothing_overwrites_pyspark() -> None:
    assert "pyspark-client" not in LOCKED
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("pyspark-client")
