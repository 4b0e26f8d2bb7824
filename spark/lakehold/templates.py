"""HTML pages of one file each, made from a template next to the code that fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehold.printable import printable

if TYPE_CHECKING:
    from jinja2 import Template


def page_template(package: str) -> Template:
    """Load the template `page.html.j2` of `package`: values are escaped and `printable`, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only what makes pages needs it

    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.j2")


def shown_path(uri: str) -> str:
    """Convert `uri` for people: a file URI becomes a path."""
    return uri.removeprefix("file://")
