"""Properties with which the two clients of a lake, PyIceberg and Spark, open the same catalog.

Both must agree on the catalog's name (a column of its database), the database and the warehouse URI, so both are derived
here from the same settings. A commit of either is a conditional update of one row, so they may write side by side.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from sqlalchemy import make_url
from sqlalchemy.engine import URL

from lakehold.errors import SettingsError
from lakehold.iceberg.object_stores import java_file_io, store_properties
from lakehold.settings import Settings

BUSY_TIMEOUT_MS = 30_000
"""How long a commit waits for another write to the SQLite file before it fails."""

_PYTHON = "py-"
"""The beginning of the names of properties that only PyIceberg reads."""

TIMEOUT_MS = f"{_PYTHON}timeout-ms"
"""The property that limits how long the catalog may take to answer PyIceberg."""

_REST_CATALOG = "lakehold.iceberg.rest_catalog.AnyTypeRestCatalog"


_PARAMETERS = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "channel_binding": "channelBinding",
    "options": "options",
    "connect_timeout": "connectTimeout",
    "application_name": "ApplicationName",
}
"""Names of PostgreSQL's parameters in libpq, with which PyIceberg connects, and in pgjdbc, with which Spark connects."""


def is_rest(catalog_uri: str) -> bool:
    """Return whether `catalog_uri` is an Iceberg REST endpoint rather than a database."""
    return catalog_uri.startswith(("http://", "https://"))


def is_sqlite(catalog_uri: str) -> bool:
    """Return whether `catalog_uri` is an SQLite file."""
    return not is_rest(catalog_uri) and make_url(catalog_uri).get_backend_name() == "sqlite"


def shown_catalog(settings: Settings) -> str:
    """Return the address of the catalog without its password."""
    return make_url(settings.catalog_uri).render_as_string()


def import_driver(settings: Settings) -> None:
    """Import the driver of a catalog in a database: PyIceberg's own error would name the class of the catalog instead.

    Raises:
        ImportError: The driver is not installed.
        SQLAlchemyError: No database is called so.
    """
    if not is_rest(settings.catalog_uri) and "type" not in settings.catalog_properties:
        make_url(settings.catalog_uri).get_dialect().import_dbapi()


def pyiceberg_properties(settings: Settings) -> dict[str, str]:
    """Return the properties of PyIceberg's catalog."""
    uri = settings.catalog_uri
    of_kind = {"py-catalog-impl": _REST_CATALOG, "uri": uri} if is_rest(uri) else _sqlalchemy(make_url(uri))
    if "type" in settings.catalog_properties:
        of_kind.pop("py-catalog-impl")
    store = store_properties(settings)
    own = {"warehouse": settings.warehouse, TIMEOUT_MS: str(settings.upstream_timeout_ms)}
    return {**own, **of_kind, **store, **settings.catalog_properties}


def spark_catalog_conf(settings: Settings) -> dict[str, str]:
    """Return the `spark.sql.catalog.<name>.*` settings of the same catalog, without properties for PyIceberg alone.

    `cache-enabled=false`, because a cached table hides commits of other processes.
    """
    uri = settings.catalog_uri
    of_kind = _rest(settings) if is_rest(uri) else _jdbc(make_url(uri)) | java_file_io(settings)
    own = {"warehouse": settings.warehouse, "cache-enabled": "false", **of_kind, **store_properties(settings)}
    properties = own | settings.catalog_properties
    prefix = f"spark.sql.catalog.{settings.catalog_name}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
        f"{prefix}.{name}": value for name, value in properties.items() if not name.startswith(_PYTHON)
    }


def _sqlalchemy(url: URL) -> dict[str, str]:
    _refuse_unknown_parameters(url)
    if url.get_backend_name() == "sqlite":
        url = url.update_query_dict({"timeout": str(BUSY_TIMEOUT_MS // 1000)})
    return {
        "py-catalog-impl": "lakehold.iceberg.sql_catalog.RememberingSqlCatalog",
        "uri": url.render_as_string(hide_password=False),
        "schema_version": "v1",
    }


def _rest(settings: Settings) -> dict[str, str]:
    timeout_ms = str(settings.upstream_timeout_ms)
    limits = {f"rest.client.{name}-timeout-ms": timeout_ms for name in ("connection", "socket")}
    return {"type": "rest", "uri": settings.catalog_uri, **limits}


def _jdbc(url: URL) -> dict[str, str]:
    _refuse_unknown_parameters(url)
    properties = {"type": "jdbc", "jdbc.schema-version": "V1"}
    if url.get_backend_name() == "sqlite":
        return properties | {"uri": f"jdbc:sqlite:{url.database}?journal_mode=WAL&busy_timeout={BUSY_TIMEOUT_MS}"}
    host = url.host or "localhost"
    place = f"[{host}]" if ":" in host else host
    port = f":{url.port}" if url.port else ""
    parameters = urlencode(_of_pgjdbc(url), quote_via=quote, safe="")
    uri = f"jdbc:{url.get_backend_name()}://{place}{port}/{url.database or ''}"
    # A time limit for answers would not be safe: Iceberg repeats a commit whose answer did not come, takes its own first commit
    # for a conflict, and deletes the files of it.
    properties |= {"uri": f"{uri}?{parameters}" if parameters else uri, "jdbc.tcpKeepAlive": "true"}
    if url.username:
        properties["jdbc.user"] = url.username
    if url.password:
        properties["jdbc.password"] = str(url.password)
    return properties


def _refuse_unknown_parameters(url: URL) -> None:
    """Raise `SettingsError` for parameters that would reach PyIceberg only: Spark would open another catalog, or unguarded."""
    known = _PARAMETERS if url.get_backend_name() == "postgresql" else {}
    unknown = [name for name, value in url.query.items() if name not in known or not isinstance(value, str)]
    if unknown:
        raise SettingsError(
            f"catalog_uri has parameters that lakehold cannot give to Spark: {', '.join(sorted(unknown))}",
            detail=f"PyIceberg and Spark connect with them alike: {', '.join(known)}, each once, for a PostgreSQL."
            if known
            else "Only the address of a PostgreSQL may have parameters.",
            hint="Remove the others from catalog_uri.",
        )


def _of_pgjdbc(url: URL) -> dict[str, str]:
    found = {_PARAMETERS[name]: str(value) for name, value in url.query.items()}
    if found.get("sslmode") == "require" and "sslrootcert" in found:
        # With an authority, libpq checks the server's certificate also with `require`; pgjdbc does not.
        found["sslmode"] = "verify-ca"
    return found
