"""Sets of artifacts: a pom that names the files, and the SHA-256 of every file that the pom must bring."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from lakehold.errors import DefinitionError

SETS_DIRECTORY = Path(__file__).parent / "sets"

STACK = ("kafka", "debezium-postgres", "debezium-mariadb", "apicurio-registry", "apicurio-converter")
"""The sets that `lakehold stack up` needs."""


@dataclass(frozen=True)
class ArtifactSet:
    """A set of artifacts.

    Attributes:
        name: Name of the set, also of its folder.
        pom: The Maven project that copies the set's files into the directory `lakehold.directory`.
        sums: The file of SHA-256 sums, one `<hex>  <file name>` a line, as `sha256sum` writes them.
    """

    name: str
    pom: Path
    sums: Path

    @property
    def key(self) -> str:
        """Return the name of the set's cache folder; it changes with the versions and with the sums."""
        content = self.pom.read_bytes() + self.sums.read_bytes()
        return f"{self.name}-{hashlib.sha256(content).hexdigest()[:12]}"

    def checksums(self) -> dict[str, str]:
        """Return the expected SHA-256 in hex by file name."""
        rows = (line.split(maxsplit=1) for line in self.sums.read_text().splitlines())
        return {name: digest for digest, name in rows}


def set_names(sets_directory: Path = SETS_DIRECTORY) -> tuple[str, ...]:
    """List the names of all sets, sorted."""
    return tuple(sorted(pom.parent.name for pom in sets_directory.glob("*/pom.xml")))


def find_set(name: str, sets_directory: Path = SETS_DIRECTORY) -> ArtifactSet:
    """Return the set of that name.

    Raises:
        DefinitionError: No set has that name.
    """
    folder = sets_directory / name
    if name not in set_names(sets_directory):
        raise DefinitionError(
            f'no set of artifacts is called "{name}"', hint=f"Choose from {', '.join(set_names(sets_directory))}."
        )
    return ArtifactSet(name, folder / "pom.xml", folder / "SHA256SUMS")


def coordinates(name: str) -> dict[str, str]:
    """Return the `group:artifact:version` of each artifact that the pom of a set names, by its artifact."""
    named = ElementTree.parse(find_set(name).pom).iterfind("{*}dependencies/{*}dependency")
    parts = ([one.findtext(f"{{*}}{part}", "") for part in ("groupId", "artifactId", "version")] for one in named)
    return {part[1]: ":".join(part) for part in parts}
