"""Opens the lake's catalog, and creates missing parts: the namespace, tables and columns of `mz_catalog`."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from pydantic import ValidationError as InvalidContent
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServerError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from sqlalchemy import inspect, make_url
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from lakehold.errors import LakeholdError, SettingsError
from lakehold.iceberg.attempts import MALFORMED, catalog_unavailable
from lakehold.iceberg.catalog_outages import is_outage, reason_of
from lakehold.iceberg.object_stores import checksum_variables
from lakehold.iceberg.properties import import_driver, is_sqlite, pyiceberg_properties, shown_catalog
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog
from lakehold.iceberg.store_errors import store_failed, store_hint
from lakehold.settings import Settings, local_path
from lakehold.state.format_version import FORMAT_VERSION, KEEPER, PROPERTY, format_version, refuse_newer, refuse_older
from lakehold.state.schema_files import SYSTEM_NAMESPACE, TableSchema, system_tables

logger = logging.getLogger(__name__)

OPEN_ATTEMPTS = 6
"""How often opening is tried: processes that open a new lake at the same time create its tables concurrently."""

_WAREHOUSE = "lakehold.warehouse"
"""The property of `KEEPER` with the warehouse in which the lake was created."""

_TABLES = "iceberg_tables"
"""The table of a catalog's database that lists the tables of its lakes."""

_DIRECTORY = f"/{KEEPER.replace('.', '/')}"
_S3_SCHEME = re.compile(r"^s3[an]?://")

_MAY_PASS = (
    DBAPIError,
    CommitFailedException,
    TableAlreadyExistsError,
    NamespaceAlreadyExistsError,
    # A REST catalog over a database answers this to the second of two creators of a namespace: "Failed to execute: INSERT …".
    ServerError,
)


def open_catalog(settings: Settings, *, must_exist: bool = False) -> Catalog:
    """Open the lake's catalog with its system tables; a lake that does not exist is created.

    Args:
        settings: How it is opened.
        must_exist: Create and change nothing.

    Raises:
        SettingsError: The catalog or the warehouse cannot be opened; or the lake must exist and does not, or is of an
            earlier lakehold.
        UpstreamUnavailable: The catalog does not answer, or the object store that the warehouse is in does not work.
    """
    opening = Retrying(
        retry=retry_if_exception_type(_MAY_PASS),
        stop=stop_after_attempt(OPEN_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05),
        before_sleep=before_sleep_log(logger, logging.INFO),
        reraise=True,
    )
    try:
        return opening(_open, settings, must_exist)
    except LakeholdError:
        raise
    except Exception as error:
        # Settings choose the classes of the catalog and of its files, which may raise anything.
        raise _cannot_open(settings, error) from error


def _open(settings: Settings, must_exist: bool) -> Catalog:
    if must_exist:
        _refuse_missing_file(settings)
    elif settings.warehouse_path:
        settings.warehouse_path.mkdir(parents=True, exist_ok=True)
    # PyArrow takes them from the environment only.
    os.environ.update(checksum_variables(settings))
    creates = {"init_catalog_tables": "false"} if must_exist else {}
    import_driver(settings)
    catalog = load_catalog(settings.catalog_name, **pyiceberg_properties(settings) | creates)
    try:
        # A class of files that cannot be loaded would look like damaged metadata.
        load_file_io(catalog.properties, settings.warehouse)
        if must_exist and isinstance(catalog, SqlCatalog) and not inspect(catalog.engine).has_table(_TABLES):
            raise _missing(settings)
        if not must_exist and isinstance(catalog, SqlCatalog) and is_sqlite(settings.catalog_uri):
            _write_ahead(catalog)
        if isinstance(catalog, RememberingSqlCatalog):
            catalog.read_ahead([schema.table for schema in system_tables()])
        if must_exist:
            _refuse_unfit(catalog, settings)
        else:
            _bring_up_to_date(catalog, settings)
    except BaseException:
        catalog.close()
        raise
    return catalog


def _refuse_missing_file(settings: Settings) -> None:
    """Raise `SettingsError` if the catalog is an SQLite file that does not exist: connecting would create it."""
    file = make_url(settings.catalog_uri).database if is_sqlite(settings.catalog_uri) else None
    if file is not None and not Path(file).exists():
        raise _missing(settings)


def _refuse_unfit(catalog: Catalog, settings: Settings) -> None:
    """Raise `SettingsError` unless the catalog has the lake, in this format."""
    keeper = _load(catalog, KEEPER)
    if keeper is None:
        raise _missing(settings)
    _refuse_foreign(catalog, keeper, settings)
    refuse_older(keeper.properties, settings.warehouse)


def _write_ahead(catalog: SqlCatalog) -> None:
    """Set SQLite's write-ahead mode, so that readers work beside a writer; the file keeps the mode."""
    with catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")


def _bring_up_to_date(catalog: Catalog, settings: Settings) -> None:
    """Create missing system tables and columns, unless a later lakehold has written the lake; then the lake has this format."""
    keeper = _load(catalog, KEEPER)
    if keeper is not None:
        _refuse_foreign(catalog, keeper, settings)
    # A new lake gets the keeper last: one whose creation was killed has no keeper, and does not pass as complete.
    for schema in sorted(system_tables(), key=lambda schema: schema.table == KEEPER):
        table = keeper if schema.table == KEEPER else _load(catalog, schema.table)
        if table is None:
            _create(catalog, schema, settings)
        else:
            _evolve(table, schema)
    if keeper is not None and format_version(keeper.properties) < FORMAT_VERSION:
        with catalog.load_table(KEEPER).transaction() as transaction:
            transaction.set_properties({PROPERTY: str(FORMAT_VERSION)})
        logger.info("the lake has format %s now", FORMAT_VERSION)


def _refuse_foreign(catalog: Catalog, keeper: Table, settings: Settings) -> None:
    """Raise `SettingsError` if a later lakehold has written the lake, or the catalog's lake is another one."""
    refuse_newer(keeper.properties, settings.warehouse)
    _refuse_other_warehouse(catalog, keeper, settings)


def _refuse_other_warehouse(catalog: Catalog, keeper: Table, settings: Settings) -> None:
    """Raise `SettingsError` if the catalog's lake is in another warehouse: statements would change that lake.

    The lake has the setting as a property, as a server chooses the places of tables: they say nothing, also once the lake has
    moved from the server to a database. A lake in a database may also be where its tables are: properties of the catalog may name
    the warehouse, and lakes of before have no such property.
    """
    known, named = keeper.properties.get(_WAREHOUSE), settings.warehouse
    if known is not None and _place(known) == _place(named):
        return
    if isinstance(catalog, SqlCatalog) and keeper.location().endswith(_DIRECTORY):
        known, named = keeper.location().removesuffix(_DIRECTORY), catalog.properties["warehouse"]
    if known is None or _place(known) == _place(named):
        return
    shown = shown_catalog(settings)
    raise SettingsError(
        f'the catalog has no lake in "{named}"',
        code="warehouse-differs",
        detail=f'The lake "{settings.catalog_name}" of the catalog "{shown}" is in "{known}".',
        hint="Name the warehouse and the catalog of one lake. To open this lake, set warehouse to its place. To open or "
        "create one elsewhere, set catalog_uri or catalog_name, too: the environment or lakehold.toml may name this catalog.",
    )


def _place(warehouse: str) -> str | Path:
    """Return what two URIs of one warehouse have in common: links are followed, and S3 has three schemes."""
    path = local_path(warehouse)
    return _S3_SCHEME.sub("s3://", warehouse).rstrip("/") if path is None else path.resolve()


def _load(catalog: Catalog, name: str) -> Table | None:
    try:
        return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except OSError:
        raise
    except MALFORMED as error:
        raise SettingsError(
            f'the lake cannot be opened: the metadata of "{name}" is damaged',
            code="lake-unreachable",
            detail=f"It cannot be read: {reason_of(error)}.",
            hint="Restore catalog and warehouse from a backup, both of one moment.",
        ) from error


def _create(catalog: Catalog, schema: TableSchema, settings: Settings) -> None:
    of_lake = {PROPERTY: str(FORMAT_VERSION), _WAREHOUSE: settings.warehouse} if schema.table == KEEPER else {}
    properties = {**schema.properties, **of_lake}
    catalog.create_namespace_if_not_exists(SYSTEM_NAMESPACE)
    catalog.create_table(
        schema.table, schema=schema.schema, partition_spec=schema.partition_spec, properties=properties
    )


def _evolve(table: Table, schema: TableSchema) -> None:
    """Add the columns that the schema file has and the table lacks; nothing else of a system table ever changes."""
    present = set(table.schema().column_names)
    missing = [field for field in schema.schema.fields if field.name not in present]
    if not missing:
        return
    with table.update_schema() as update:
        for field in missing:
            update.add_column(field.name, field.field_type, doc=field.doc)
    logger.info("added %s to %s", ", ".join(field.name for field in missing), schema.table)


def _missing(settings: Settings) -> LakeholdError:
    return SettingsError(
        f'there is no lake in "{settings.warehouse}"',
        code="lake-missing",
        detail=f'The catalog "{shown_catalog(settings)}" has no lake "{settings.catalog_name}". Nothing was created.',
        hint="Check warehouse, catalog_uri and catalog_name. The first statement makes a new lake, such as: "
        'lakehold sql "SHOW SOURCES"',
    )


def _cannot_open(settings: Settings, cause: Exception) -> LakeholdError:
    if store_hint(str(cause)):
        return store_failed(str(cause), f'the lake in "{settings.warehouse}"')
    shown = shown_catalog(settings)
    if is_outage(cause):
        return catalog_unavailable(f'Opening the catalog "{shown}"', cause)
    if isinstance(cause, InvalidContent):
        reason = f"it answers with something else: {cause.errors()[0]['msg']}"
    else:
        reason = reason_of(cause)
    return SettingsError(
        f'the lake in "{settings.warehouse}" cannot be opened',
        code="lake-unreachable",
        detail=f'Its catalog "{shown}" failed: {reason}.',
        hint="Check catalog_uri, catalog_properties and warehouse, and that both places can be written from here.",
    )
