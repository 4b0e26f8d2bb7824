"""Options of subscriptions and materialized views as fields of their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from lakehold.definitions import MaterializedView, OptionValue, Subscription
from lakehold.sql.text.options import KINDS

_DerivedT = TypeVar("_DerivedT", bound=Subscription | MaterializedView)


def with_options(definition: _DerivedT, options: Mapping[str, OptionValue | None]) -> _DerivedT:
    """Set the options that a statement has; None sets an option to its default."""
    found: dict[str, Any] = {}
    for field in fields(definition):
        name = field.name.removesuffix("_ms")
        if name in options:
            value = options[name]
            kind = KINDS.get(name)
            found[field.name] = field.default if value is None else kind(str(value)) if kind is not None else value
    return replace(definition, **found)
