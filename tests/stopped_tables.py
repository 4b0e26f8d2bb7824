"""Tables that stop because another tool has changed their owner mark, and recover when the mark is restored."""

from __future__ import annotations

from lakehold.lake import Lake
from lakehold.model.summary_keys import OBJECT_ID


def make_foreign(lake: Lake, name: str) -> None:
    """Change the owner mark of a table, so that the next batch with changes stops it."""
    _set_owner(lake, name, "another's")


def make_own(lake: Lake, name: str) -> None:
    """Restore the owner mark of a table, so that it catches up with the next ingest."""
    _set_owner(lake, name, lake.definitions.definitions().table(name).object_id)


def _set_owner(lake: Lake, name: str, object_id: str) -> None:
    lake.spark.sql(
        f"ALTER TABLE {lake.settings.catalog_name}.{name} SET TBLPROPERTIES ('{OBJECT_ID}' = \"{object_id}\")"
    )
