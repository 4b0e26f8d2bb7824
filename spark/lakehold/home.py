"""The home directory of the user, which a container may not have."""

from __future__ import annotations

from pathlib import Path

from lakehold.errors import EnvironmentMissing


def below_home(path: Path, variable: str) -> Path:
    """Return a path that begins with `~` in full; the environment's `variable` is what would make it unneeded.

    Raises:
        EnvironmentMissing: The user has no home directory.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise EnvironmentMissing(
            "this user has no home directory",
            code="home-missing",
            detail=f"Neither HOME nor the system's list of users names one, and {path} is needed.",
            hint=f"Set {variable} to a directory, or set HOME.",
        ) from error
