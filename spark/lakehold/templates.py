"""HTML pages that are one file each, made by a template beside the code that fills it."""

from __future__ import annotations

from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


def page_template(package: str) -> Template:
    """The template `page.html.j2` of `package`: values are escaped, and one that is not given is an error."""
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.j2")


def shown_path(uri: str) -> str:
    """`uri` for people: a path if it is on this machine."""
    return urlsplit(uri).path if uri.startswith("file:") else uri
