"""Values of secrets, read from the environment at each use and never stored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase

from lakehold.definitions import OptionValue, Secret
from lakehold.errors import SettingsError

SECRET_PREFIX = "LAKEHOLD_SECRET_"
READABLE_VARIABLE = "LAKEHOLD_SECRETS"


def secret_value(secret: Secret) -> str:
    """Return the value of `SECRET 'NAME'`: the environment variable `NAME`, then `LAKEHOLD_SECRET_<NAME>`.

    `LAKEHOLD_SECRETS`, if set, lists the variables that may be read, with `*` for any characters.

    Raises:
        SettingsError: Neither variable is set, or neither may be read.
    """
    places = (secret.name, f"{SECRET_PREFIX}{secret.name}".upper())
    readable = [name.strip() for name in os.environ.get(READABLE_VARIABLE, "*").split(",")]
    allowed = [place for place in places if any(fnmatchcase(place, name) for name in readable)]
    for place in allowed:
        if place in os.environ:
            return os.environ[place]
    if not allowed:
        raise SettingsError(
            f'secret "{secret.name}" may not be read',
            code="secret-denied",
            detail=f"{READABLE_VARIABLE} lists neither {places[0]} nor {places[1]}.",
            hint=f"Name a secret that it lists, or add {places[1]} to it where this command runs.",
        )
    raise SettingsError(
        f'secret "{secret.name}" has no value',
        code="secret-missing",
        detail=f"Neither environment variable {places[0]} nor {places[1]} is set."
        if len(allowed) > 1
        else f"Environment variable {allowed[0]} is not set, and {READABLE_VARIABLE} lists no other one for it.",
        hint=f"Set {allowed[-1]} where this command runs.",
    )


def resolve(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Convert `options` to text: secrets become their values, and booleans `true` or `false`."""
    return {name: _text(value) for name, value in options.items()}


def _text(value: OptionValue) -> str:
    match value:
        case Secret():
            return secret_value(value)
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
