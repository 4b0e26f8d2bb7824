"""Sets of jars: fetched once, verified, found again without Maven.

A script on the PATH plays only Maven's download; files, sums, locks and the cache are real.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehold import artifacts
from lakehold.artifacts import cache
from lakehold.artifacts.sets import STACK, find_set, set_names
from lakehold.errors import DefinitionError, EnvironmentMissing

JAR_CONTENT = b"not really a jar"

MAVEN_SCRIPT = """#!/bin/sh
echo run >> "$MAVEN_RUNS"
for argument in "$@"; do
  case "$argument" in -Dlakehold.directory=*) target="${argument#*=}" ;; esac
done
cp "$MAVEN_FILES"/* "$target"
echo "[INFO] Downloaded from somewhere: scheme://host/path/engine-1.0.jar (16 B at 1 kB/s)"
"""


class Workbench:
    """A folder of sets with the set `engine`, a cache directory, and a Maven that copies from `upstream`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sets = root / "sets"
        self.cache = root / "cache"
        self.upstream = root / "upstream"
        self.programs = root / "bin"
        self._runs = root / "maven-runs"
        for folder in (self.sets / "engine", self.upstream, self.programs):
            folder.mkdir(parents=True)
        (self.sets / "engine" / "pom.xml").write_text("<project/>")
        (self.upstream / "engine-1.0.jar").write_bytes(JAR_CONTENT)
        self.list_sums({"engine-1.0.jar": JAR_CONTENT})
        self._install("mvn", MAVEN_SCRIPT)
        self._install("java", "#!/bin/sh\n")
        monkeypatch.setenv("LAKEHOLD_CACHE_DIR", str(self.cache))
        monkeypatch.setenv("MAVEN_FILES", str(self.upstream))
        monkeypatch.setenv("MAVEN_RUNS", str(self._runs))
        monkeypatch.setenv("PATH", f"{self.programs}:/usr/bin:/bin")
        monkeypatch.delenv("JAVA_HOME", raising=False)

    def list_sums(self, files: dict[str, bytes]) -> None:
        lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
        (self.sets / "engine" / "SHA256SUMS").write_text("".join(lines))

    def maven_runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0

    def _install(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(script)
        program.chmod(0o755)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    return Workbench(tmp_path, monkeypatch)


def test_a_set_is_fetched_once_and_then_found_without_maven(bench: Workbench) -> None:
    progress: list[str] = []

    first = artifacts.jars("engine", sets_directory=bench.sets, on_event=progress.append)
    again = artifacts.jars("engine", sets_directory=bench.sets, on_event=progress.append)

    assert first == again
    assert [jar.read_bytes() for jar in first] == [JAR_CONTENT]
    assert bench.maven_runs() == 1
    assert "engine: engine-1.0.jar (16 B at 1 kB/s)" in progress


def test_a_cached_set_needs_no_programs(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = artifacts.directory("engine", sets_directory=bench.sets)
    monkeypatch.setenv("PATH", "")

    assert artifacts.directory("engine", sets_directory=bench.sets) == fetched


def test_a_tampered_file_is_refused_and_named(bench: Workbench) -> None:
    (bench.upstream / "engine-1.0.jar").write_bytes(b"something else")

    with pytest.raises(EnvironmentMissing) as refusal:
        artifacts.directory("engine", sets_directory=bench.sets)

    assert refusal.value.code == "artifact-checksum"
    assert "engine-1.0.jar has SHA-256" in refusal.value.detail
    assert [path.name for path in bench.cache.iterdir()] == ["fetch.lock"], (
        "no part of the refused set may stay in the cache"
    )


@pytest.mark.parametrize(
    ("listed", "fault"),
    [
        ({"engine-1.0.jar": JAR_CONTENT, "wheel-1.0.jar": b""}, "wheel-1.0.jar is missing"),
        ({}, "engine-1.0.jar is not listed"),
    ],
)
def test_a_file_too_few_or_too_many_is_refused(bench: Workbench, listed: dict[str, bytes], fault: str) -> None:
    bench.list_sums(listed)

    with pytest.raises(EnvironmentMissing) as refusal:
        artifacts.directory("engine", sets_directory=bench.sets)

    assert fault in refusal.value.detail


def test_other_versions_live_in_another_directory(bench: Workbench) -> None:
    old = artifacts.directory("engine", sets_directory=bench.sets)
    (bench.upstream / "engine-1.0.jar").write_bytes(b"a newer jar")
    cache.lock("engine", sets_directory=bench.sets)

    new = artifacts.directory("engine", sets_directory=bench.sets)

    assert new != old
    assert (old / "engine-1.0.jar").read_bytes() == JAR_CONTENT
    assert (new / "engine-1.0.jar").read_bytes() == b"a newer jar"


def test_processes_that_fetch_at_once_share_one_fetch(bench: Workbench) -> None:
    script = (
        "import sys; from pathlib import Path; from lakehold.artifacts import directory;"
        "print(directory('engine', sets_directory=Path(sys.argv[1])))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    fetches = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(bench.sets)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(4)
    ]
    answers = [fetch.communicate(timeout=60)[0].strip() for fetch in fetches]

    assert [fetch.returncode for fetch in fetches] == [0] * 4
    assert set(answers) == {str(artifacts.directory("engine", sets_directory=bench.sets))}
    assert bench.maven_runs() == 1


@pytest.mark.parametrize("program", ["mvn", "java"])
def test_a_missing_program_is_named_with_the_way_to_get_it(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    (bench.programs / program).unlink()
    monkeypatch.setenv("PATH", str(bench.programs))

    with pytest.raises(EnvironmentMissing) as refusal:
        artifacts.directory("engine", sets_directory=bench.sets)

    assert f"No {program} is on the PATH." in refusal.value.detail
    assert "apt-get install maven openjdk-17-jre-headless" in refusal.value.hint
    assert "JAVA_HOME" in refusal.value.hint


def test_an_error_shows_the_message_of_maven(bench: Workbench) -> None:
    (bench.programs / "mvn").write_text("#!/bin/sh\necho '[ERROR] no such artifact: engine:1.0'\nexit 1\n")

    with pytest.raises(EnvironmentMissing) as refusal:
        artifacts.directory("engine", sets_directory=bench.sets)

    assert refusal.value.code == "artifact-fetch"
    assert "no such artifact: engine:1.0" in refusal.value.detail


def test_a_set_nobody_defined_is_refused_with_the_choice() -> None:
    with pytest.raises(DefinitionError) as refusal:
        find_set("sparc")

    assert "spark" in refusal.value.hint


def test_every_set_of_the_package_lists_its_sums() -> None:
    assert set(STACK) < set(set_names())
    for name in set_names():
        sums = find_set(name).checksums()
        assert sums, name
        assert all(len(digest) == 64 for digest in sums.values()), name
