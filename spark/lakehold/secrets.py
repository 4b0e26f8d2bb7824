"""Values of secrets, read from the environment at each use and never stored."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lakehold.definitions import OptionValue, Secret
from lakehold.errors import SettingsError

SECRET_PREFIX = "LAKEHOLD_SECRET_"


def secret_value(secret: Secret) -> str:
    """Return the value of `SECRET 'NAME'`: the environment variable `NAME`, then `LAKEHOLD_SECRET_<NAME>`.

    Raises:
        SettingsError: Neither variable is set.
    """
    places = (secret.name, f"{SECRET_PREFIX}{secret.name}".upper())
    for place in places:
        if place in os.environ:
            return os.environ[place]
    raise SettingsError(
        f'secret "{secret.name}" has no value',
        code="secret-missing",
        detail=f"Neither environment variable {places[0]} nor {places[1]} is set.",
        hint=f"Set {places[1]} where this command runs.",
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
