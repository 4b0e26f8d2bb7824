"""The wheel and the sdist, built as a release builds them, and new environments to install them into."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from packaging.metadata import Metadata

from tests.doc_pages import ROOT

UV = Path(sys.executable).with_name("uv")
FOLDERS = {
    "spark/lakehold": "lakehold",
    "iceberg_schemas": "lakehold/iceberg_schemas",
    "expectations": "lakehold/expectations",
}
"""The folders of the repository that a wheel has, and what they are called there."""


@dataclass(frozen=True)
class Packages:
    """The two files of a release.

    Args:
        wheel: What users install.
        sdist: The sources, from which the wheel was built.
    """

    wheel: Path
    sdist: Path

    @classmethod
    def built(cls, folder: Path) -> Packages:
        """Build the sdist, and the wheel from the sdist alone."""
        run(str(UV), "build", "--quiet", "--no-build-isolation", "--out-dir", str(folder), str(ROOT), cwd=ROOT)
        return cls.within(folder)

    @classmethod
    def within(cls, folder: Path) -> Packages:
        """Find the files of one release in a folder."""
        (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
        return cls(wheel, sdist)

    @property
    def metadata(self) -> Metadata:
        """Read the wheel's metadata.

        Raises:
            ExceptionGroup: A package index would refuse it.
        """
        with zipfile.ZipFile(self.wheel) as opened:
            return Metadata.from_email(opened.read(self._of_metadata("METADATA")), validate=True)

    @property
    def tags(self) -> Message:
        """Read which Pythons and platforms the wheel is for."""
        with zipfile.ZipFile(self.wheel) as opened:
            return BytesParser().parsebytes(opened.read(self._of_metadata("WHEEL")))

    def files_of_wheel(self) -> set[str]:
        """Return the files of the package, without the metadata."""
        with zipfile.ZipFile(self.wheel) as opened:
            return {name for name in opened.namelist() if ".dist-info/" not in name}

    def files_of_sdist(self) -> set[str]:
        """Return the files of the sources, by their paths in the repository."""
        with tarfile.open(self.sdist) as opened:
            return {member.name.partition("/")[2] for member in opened if not member.isdir()}

    def _of_metadata(self, name: str) -> str:
        return f"{'-'.join(self.wheel.name.split('-')[:2])}.dist-info/{name}"


def run(*command: str, cwd: Path) -> str:
    """Run a command that must go well, and return what it prints; it sees installed packages only, and not this checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def new_environment(folder: Path, python: str, *install: str) -> Path:
    """Make an environment, install into it and return the folder of its programs."""
    run(str(UV), "venv", "--quiet", "--python", python, "env", cwd=folder)
    programs = folder / "env" / "bin"
    run(str(UV), "pip", "install", "--quiet", "--python", str(programs / "python"), *install, cwd=folder)
    return programs


def committed_files() -> set[str]:
    """Return every file of the repository that is committed or could be, by its path."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def wanted_in_wheel() -> set[str]:
    """Return the files that a wheel must have: the package, and the two folders of definitions that it reads."""
    return {
        name.replace(folder, inside, 1)
        for name in committed_files()
        for folder, inside in FOLDERS.items()
        if name.startswith(f"{folder}/") and not name.endswith("/README.md")
    }
