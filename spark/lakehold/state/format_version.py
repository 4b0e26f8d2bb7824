"""The version of a lake's format: what an earlier lakehold would lose or misread, so that it refuses the lake instead.

It is a property of the table `mz_catalog.mz_objects`, which every opening reads anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakehold.errors import SettingsError

FORMAT_VERSION: Final = 4
"""The format that this lakehold writes. It increases with every change of `mz_catalog`: an earlier lakehold that changes a row of
most of its tables writes all rows, without the columns and fields that it does not know. It also increases if a column has values
that an earlier lakehold cannot read."""

KEEPER: Final = "mz_catalog.mz_objects"
"""The table whose property is the version."""

PROPERTY: Final = "lakehold.format-version"


def format_version(properties: Mapping[str, str]) -> int:
    """Return the version of a lake's format, from the properties of `KEEPER`: 0 for a lake from before there were versions."""
    return int(properties.get(PROPERTY, "0"))


def refuse_newer(properties: Mapping[str, str], warehouse: str | None) -> None:
    """Check that this lakehold knows the format of a lake.

    Raises:
        SettingsError: A later lakehold has written it.
    """
    found = format_version(properties)
    if found > FORMAT_VERSION:
        raise SettingsError(
            f'the lake in "{warehouse}" is of a later lakehold',
            code="lake-newer",
            detail=f"It has format {found}; this lakehold knows the formats up to {FORMAT_VERSION}. Nothing was changed.",
            hint="Upgrade lakehold here, as where the lake was opened last; or restore the backup from before the upgrade.",
        )


def refuse_older(properties: Mapping[str, str], warehouse: str | None) -> None:
    """Check that a lake which is not to be changed has the format of this lakehold.

    Raises:
        SettingsError: An earlier lakehold has written it.
    """
    found = format_version(properties)
    if found < FORMAT_VERSION:
        raise SettingsError(
            f'the lake in "{warehouse}" is of an earlier lakehold',
            code="lake-older",
            detail=f"It has format {found}; this lakehold writes format {FORMAT_VERSION}. Nothing was changed.",
            hint="Stop all processes of the earlier lakehold. Then a statement brings the lake to this format, such as: "
            'lakehold sql "SHOW SOURCES"',
        )
