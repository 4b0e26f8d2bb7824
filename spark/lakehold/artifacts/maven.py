"""Maven, run on a set's pom. Maven's own configuration says where artifacts come from; nothing here does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from lakehold.artifacts.sets import ArtifactSet
from lakehold.errors import EnvironmentMissing

_DOWNLOADED = re.compile(r"Downloaded from .*/(?P<file>[^/]+\.(?:jar|tar\.gz)) \((?P<size>[^)]* at [^)]*)\)")
_ERROR_LINES = 6

_INSTALL_HINT = (
    "Run apt-get install maven openjdk-17-jre-headless, or set JAVA_HOME to a JDK 17 and put mvn on the PATH."
)


def java_executable() -> Path:
    """Return the `java` of JAVA_HOME if that is set, else the one on the PATH.

    Raises:
        EnvironmentMissing: There is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if java.is_file():
            return java
        raise EnvironmentMissing(
            "Java not found", detail=f"JAVA_HOME is {home}, and {java} does not exist.", hint=_INSTALL_HINT
        )
    found = shutil.which("java")
    if found is None:
        raise EnvironmentMissing("Java not found", detail="No java is on the PATH.", hint=_INSTALL_HINT)
    return Path(found)


def copy_artifacts(artifact_set: ArtifactSet, target: Path, on_event: Callable[[str], None]) -> None:
    """Run Maven to put the set's files into `target`.

    Args:
        artifact_set: The set to fetch.
        target: An existing directory.
        on_event: Called with one line per downloaded file.

    Raises:
        EnvironmentMissing: Maven or Java is missing, or Maven could not get a file.
    """
    java_executable()
    maven = shutil.which("mvn")
    if maven is None:
        raise EnvironmentMissing(
            f'the files of set "{artifact_set.name}" cannot be fetched',
            code="artifact-fetch",
            detail="No mvn is on the PATH.",
            hint=f"{_INSTALL_HINT} {_by_hand(artifact_set)}",
        )
    command = [maven, "-B", "-f", str(artifact_set.pom), f"-Dlakehold.directory={target}", "generate-resources"]
    errors: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if match := _DOWNLOADED.search(line):
                on_event(f"{artifact_set.name}: {match['file']} ({match['size']})")
            elif "ERROR" in line:
                errors.append(line.strip())
    if process.returncode != 0:
        raise EnvironmentMissing(
            f'the files of set "{artifact_set.name}" cannot be fetched',
            code="artifact-fetch",
            detail="Maven said:\n" + "\n".join(errors[:_ERROR_LINES]),
            hint="Check that Maven reaches its repository (settings.xml, proxy) and run the command again. "
            f"{_by_hand(artifact_set)}",
        )


def _by_hand(artifact_set: ArtifactSet) -> str:
    return (
        f"Or copy the folder {artifact_set.key} from the cache of a machine that has it into the cache of this one: "
        "LAKEHOLD_CACHE_DIR, by default ~/.cache/lakehold."
    )
