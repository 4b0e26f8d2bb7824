"""Tables that stop, as another tool has put its mark on them, and recover when it has taken it off."""

from __future__ import annotations

from lakehold.ingest.write.evolve import OBJECT_ID
from lakehold.lake import Lake


def make_foreign(lake: Lake, name: str) -> None:
    """The next batch with changes for the table `name` stops it."""
    _set_owner(lake, name, "another's")


def make_own(lake: Lake, name: str) -> None:
    """The next ingest lets it catch up."""
    _set_owner(lake, name, lake.definitions.definitions().table(name).object_id)


def _set_owner(lake: Lake, name: str, object_id: str) -> None:
    lake.spark.sql(
        f"ALTER TABLE {lake.settings.catalog_name}.{name} SET TBLPROPERTIES ('{OBJECT_ID}' = \"{object_id}\")"
    )
