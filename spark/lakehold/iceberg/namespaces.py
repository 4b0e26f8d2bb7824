"""The namespaces of a catalog: lists them, nested ones included, where PyIceberg lists those of one level; and creates them."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError
from pyiceberg.typedef import Identifier
from tenacity import Retrying, stop_after_attempt

from lakehold.iceberg.sql_catalog import RememberingSqlCatalog

_NO_NESTED_ONES = (NoSuchNamespaceError, BadRequestError, NotImplementedError)
"""What a catalog answers that has no nested namespaces, and if a namespace was dropped since it was listed."""


def all_namespaces(catalog: Catalog) -> list[Identifier]:
    """Return the namespaces of all levels."""
    if isinstance(catalog, RememberingSqlCatalog):
        return catalog.all_namespaces()
    return [found for top in catalog.list_namespaces() for found in (top, *_below(catalog, top))]


def create_namespace(catalog: Catalog, name: str) -> None:
    """Create a namespace, unless it exists."""
    # Several writers may create the first tables of a namespace at the same time: the catalog refuses all but one.
    for attempt in Retrying(stop=stop_after_attempt(2), reraise=True):
        with attempt:
            if not catalog.namespace_exists(name):
                catalog.create_namespace_if_not_exists(name)


def _below(catalog: Catalog, parent: Identifier) -> Iterator[Identifier]:
    try:
        children = catalog.list_namespaces(parent)
    except _NO_NESTED_ONES:
        return
    for child in children:
        # A server that does not know nested namespaces may ignore the parent, and answer with those of the top level.
        if len(child) > len(parent) and child[: len(parent)] == parent:
            yield child
            yield from _below(catalog, child)
