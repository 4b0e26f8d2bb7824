"""Views: the names of the catalog that are views, and where these are. PyIceberg does not read views from a database."""

from __future__ import annotations

import posixpath

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchViewError
from pyiceberg.typedef import Identifier
from sqlalchemy import select
from sqlalchemy.orm import Session

from lakehold.iceberg.attempts import MALFORMED
from lakehold.iceberg.namespaces import all_namespaces

_VIEW = "VIEW"


def is_view(catalog: Catalog, full_name: str) -> bool:
    """Return whether `full_name` is a view."""
    if not isinstance(catalog, SqlCatalog):
        return catalog.view_exists(full_name)
    namespace, _, name = full_name.rpartition(".")
    found = select(IcebergTables.iceberg_type).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == name,
    )
    with Session(catalog.engine) as session:
        return session.scalar(found) == _VIEW


def views_in(catalog: Catalog, namespace: str) -> list[str]:
    """Return the names of the views in a namespace."""
    if not isinstance(catalog, SqlCatalog):
        return [name for *_, name in catalog.list_views(namespace)]
    found = select(IcebergTables.table_name).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.iceberg_type == _VIEW,
    )
    with Session(catalog.engine) as session:
        return list(session.scalars(found))


def view_locations(catalog: Catalog) -> dict[str, str | None]:
    """Return the location of the metadata files of each view, by the view's full name; None if the view cannot be read."""
    if not isinstance(catalog, SqlCatalog):
        names = [name for namespace in all_namespaces(catalog) for name in catalog.list_views(namespace)]
        return {".".join(name): _location(catalog, name) for name in names}
    columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
    found = select(*columns).where(IcebergTables.catalog_name == catalog.name, IcebergTables.iceberg_type == _VIEW)
    with Session(catalog.engine) as session:
        return {
            f"{namespace}.{name}": posixpath.dirname(file) if file else None
            for namespace, name, file in session.execute(found)
        }


def _location(catalog: Catalog, name: Identifier) -> str | None:
    try:
        return catalog.load_view(name).metadata.location
    except (NoSuchViewError, *MALFORMED):
        return None
