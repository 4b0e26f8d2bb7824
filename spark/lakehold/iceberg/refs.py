"""Changes of a table's branches and tags in one small commit without Spark, for tables of any format version.

The commit may set properties of the table, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakehold.iceberg import attempts
from lakehold.iceberg.attempts import Attempt
from lakehold.iceberg.metadata_commits import by_file
from lakehold.iceberg.metadata_files import MetadataJson
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog

RefsJson = Mapping[str, Mapping[str, Any]]
"""Refs by their names, each as in a metadata file."""

FOREVER_MS = 2**63 - 1
"""The `max-ref-age-ms` of a tag that no setting of its table expires."""


@dataclass(frozen=True)
class RefChanges:
    """A set of changes to a table's branches and tags.

    Attributes:
        main: The snapshot that becomes the current one; None leaves it.
        tags: Snapshot ids by tag names, for tags that never expire; a tag on another snapshot moves.
        branches: Snapshot ids by names of new branches.
        removed: Names of tags and branches to remove.
        properties: Properties of the table to set.
    """

    main: int | None = None
    tags: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, int] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.main is not None or self.tags or self.branches or self.removed or self.properties)


def change_refs(catalog: Catalog, full_name: str, plan: Callable[[Table], RefChanges | None]) -> RefChanges | None:
    """Commit `plan(table)` unless another writer commits in between; then plan again on the newest table.

    Returns the committed changes; None if there was nothing to change.

    Args:
        catalog: The lake's catalog.
        full_name: Full name of the table.
        plan: Plans the changes of the given table; it raises to refuse.

    Raises:
        DefinitionError: The table does not exist, or cannot be read.
        CommitConflict: Others committed first each time.
        UpstreamUnavailable: The catalog does not answer; a commit may or may not have happened.
    """

    def attempt(table: Table) -> Attempt[RefChanges] | None:
        changes = plan(table)
        if not changes:
            return None
        if isinstance(catalog, RememberingSqlCatalog):
            return by_file(catalog, table, changes, lambda fields: with_refs(fields, changes))
        return _by_catalog(catalog, table, changes)

    return attempts.change(catalog, full_name, attempt)


def _by_catalog(catalog: Catalog, table: Table, changes: RefChanges) -> Attempt[RefChanges]:
    """Change refs through a catalog that writes the metadata itself, with the earlier refs as requirements."""
    before = _as_json(table)
    after = _changed(before, changes)
    touched = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    requirements: list[TableRequirement] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
    updates: list[TableUpdate] = []
    for name in touched:
        requirements.append(AssertRefSnapshotId(ref=name, snapshot_id=before.get(name, {}).get("snapshot-id")))
        if name in after:
            updates.append(SetSnapshotRefUpdate.model_validate({"ref-name": name, **after[name]}))
        else:
            updates.append(RemoveSnapshotRefUpdate(ref_name=name))
    if changes.properties:
        updates.append(SetPropertiesUpdate(updates=dict(changes.properties)))

    def commit() -> None:
        catalog.commit_table(table, tuple(requirements), tuple(updates))

    def is_in(newest: Table) -> bool:
        refs = _as_json(newest)
        return all(refs.get(name) == after.get(name) for name in touched) and (
            newest.properties.items() >= changes.properties.items()
        )

    return Attempt(table, changes, (), commit, is_in)


def _as_json(table: Table) -> RefsJson:
    return {name: ref.model_dump(by_alias=True, exclude_none=True) for name, ref in table.metadata.refs.items()}


def _changed(refs: RefsJson, changes: RefChanges) -> dict[str, Any]:
    tags = {name: _tag(snapshot_id) for name, snapshot_id in changes.tags.items()}
    branches = {name: {**_BRANCH, "snapshot-id": snapshot_id} for name, snapshot_id in changes.branches.items()}
    changed = {name: ref for name, ref in refs.items() if name not in changes.removed} | tags | branches
    if changes.main is not None:
        changed[MAIN_BRANCH] = {**refs.get(MAIN_BRANCH, _BRANCH), "snapshot-id": changes.main}
    return changed


def with_refs(fields: MetadataJson, changes: RefChanges) -> MetadataJson:
    """Return metadata with changed refs; main moves at the time of the newest snapshot."""
    after = {**fields, "refs": _changed(_refs(fields), changes)}
    if changes.properties:
        after["properties"] = {**(fields.get("properties") or {}), **changes.properties}
    if changes.main is not None:
        after["current-snapshot-id"] = changes.main
        current = {"timestamp-ms": fields["last-updated-ms"], "snapshot-id": changes.main}
        after["snapshot-log"] = [*fields.get("snapshot-log", ()), current]
    return after


_BRANCH = {"type": SnapshotRefType.BRANCH.value}


def _refs(fields: MetadataJson) -> RefsJson:
    """Return the refs of a metadata file; a table whose writer knew no refs has a main branch."""
    current = fields.get("current-snapshot-id")
    main = {} if current in (None, -1) else {MAIN_BRANCH: {**_BRANCH, "snapshot-id": current}}
    return {**main, **(fields.get("refs") or {})}


def _tag(snapshot_id: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot_id, "type": SnapshotRefType.TAG.value, "max-ref-age-ms": FOREVER_MS}
