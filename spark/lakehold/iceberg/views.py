"""Views: the names of the catalog that are views, which PyIceberg does not read from a database."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import select
from sqlalchemy.orm import Session

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
