"""Settings of a lake and limits of its batches: explicit arguments, then `LAKEHOLD_*`, then `lakehold.toml`."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import DirectoryPath, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError

from lakehold.errors import SettingsError, bad_byte
from lakehold.nearest import did_you_mean

ENVIRONMENT_PREFIX = "LAKEHOLD_"
CONFIG_VARIABLE = "LAKEHOLD_CONFIG"
CONFIG_FILE = "lakehold.toml"
DEFAULT_CATALOG = "lake"

_TABLES_AT_ONCE_FAR = 8

_ADDRESS = re.compile(r"[\w+]+://")

_WITH_SECRETS = {"catalog_uri", "catalog_properties", "spark_conf", "spark_remote"}
"""Settings whose values may hold secrets, so that no error shows them."""


def _catalog_in_warehouse(data: dict[str, Any]) -> str:
    warehouse = data.get("warehouse", "file:///")
    path = local_path(warehouse)
    if path is None:
        raise SettingsError(
            f'a lake in "{warehouse}" needs a catalog',
            detail="Only a warehouse on this machine has a default: an SQLite file in it.",
            hint=f"Set {ENVIRONMENT_PREFIX}CATALOG_URI to postgresql+psycopg2://… or to a REST catalog, https://….",
        )
    return f"sqlite:///{path}/catalog.db"


def _tables_at_once(data: dict[str, Any]) -> int:
    is_here = local_path(data.get("warehouse", "file:///")) is not None
    return max(2 if is_here else _TABLES_AT_ONCE_FAR, os.cpu_count() or 1)


def _schemas_here() -> Path | None:
    folder = Path("iceberg_schemas")
    return folder if folder.is_dir() else None


def _as_uri(value: str) -> str:
    if urlsplit(value).scheme not in ("", "file"):
        return value.rstrip("/")
    if set("?#") & set(value):
        # Iceberg's clients read locations as URIs, in which these end the path: two directories would be one.
        raise ValueError("a path must contain neither ? nor #")
    path = Path(urlsplit(value).path if value.startswith("file:") else value)
    try:
        return f"file://{path.expanduser().resolve()}"
    except RuntimeError as error:  # of `~` without a home directory
        raise ValueError(str(error).rstrip(".")) from error


def _refuse_unreadable(address: str, *, is_url: bool) -> None:
    """Raise `ValueError` if the address's host or port cannot be read. What is wrong is not quoted: it may be in a password."""
    try:
        if is_url:
            _ = urlsplit(address).port
        else:
            from sqlalchemy import make_url  # noqa: PLC0415 - only these addresses need it

            make_url(address)
    except ValueError:
        raise ValueError(
            "its host or port cannot be read; a user name or password has % and a code for each of : / @ [ ] # ?"
        ) from None


def local_path(uri: str) -> Path | None:
    """Return the path of a `file:` URI of a setting; None if the URI names an object store."""
    return Path(uri.removeprefix("file://")) if uri.startswith("file://") else None


def _expectations_here() -> Path | None:
    folder = Path("expectations")
    return folder if folder.is_dir() else None


class Settings(BaseSettings):
    """The settings of a lake: all that is not stored in the lake itself.

    Each field is an argument of `lakehold.connect`, the environment variable `LAKEHOLD_<FIELD>`, or a key of
    `lakehold.toml` (in the working directory, or where `LAKEHOLD_CONFIG` says); the first that has a value wins.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_default=True,
        hide_input_in_errors=True,
    )

    warehouse: str = "lake"
    """Directory or object-store URI that holds the tables; a relative path starts at the working directory."""

    catalog_uri: str = Field(default_factory=_catalog_in_warehouse)
    """Iceberg catalog: an SQLAlchemy URL (`sqlite:///…`, `postgresql+psycopg2://…`) or a REST endpoint (`https://…`).
    By default the SQLite file `catalog.db` in the warehouse."""

    catalog_name: str = Field(default=DEFAULT_CATALOG, pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the catalog in Spark and PyIceberg; one catalog database keeps the tables of each name apart."""

    catalog_properties: dict[str, str] = Field(default_factory=dict)
    """Further properties of the catalog, under Iceberg's names and for both Spark and PyIceberg; they win over lakehold's own.
    A REST catalog may need `credential` or `token`, and a name as its `warehouse`."""

    schemas: DirectoryPath | None = Field(default_factory=_schemas_here)
    """Directory of contracts of tables, `<namespace.table>.json`; empty: none. By default the folder `iceberg_schemas`
    of the working directory, if it exists."""

    expectations: DirectoryPath | None = Field(default_factory=_expectations_here)
    """Directory of suites of Great Expectations, `<namespace.table>.json`; empty: none. By default the folder `expectations`
    of the working directory, if it exists."""

    check_pages: str | None = None
    """Directory or URI for the pages that checks write; by default the folder `_checks` of the warehouse."""

    role: str | None = None
    """Role whose privileges count for holds and subscriptions, once roles exist."""

    spark_remote: str | None = None
    """Spark Connect endpoint (`sc://host:port`); unset, Spark runs in this process."""

    spark_master: str = "local[*]"
    """Spark master of a session in this process, or of the server of `lakehold spark up`; unused with `spark_remote`."""

    spark_driver_memory: str = Field(default="2g", pattern=r"^[0-9]+[kmgt]$")
    """Heap of Spark's driver, as Spark writes it (`2g`)."""

    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Further Spark settings, which win over lakehold's own."""

    max_batch_records: int = Field(default=500_000, gt=0)
    """Records in one batch, at most; a larger transaction makes its batch larger."""

    max_batch_bytes: int = Field(default=256 * 1024 * 1024, gt=0)
    """Bytes of keys and values in one batch, at most, if they are known before reading."""

    max_record_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    """Bytes of one record, at most; a larger one cannot be read from the broker."""

    driver_read_max_records: int = Field(default=20_000, ge=0)
    """Records up to which a batch is read in the driver instead of by a Spark job; 0 reads all by Spark."""

    driver_read_max_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Bytes up to which a batch is read in the driver instead of by a Spark job."""

    tables_at_once: int = Field(default_factory=_tables_at_once, gt=0)
    """How many tables of a batch are written side by side, each in a Spark session of its own, and how many subscriptions and
    views one command publishes side by side; by default one a core, at least eight if the warehouse is in an object store: a
    table then waits for answers for most of its time."""

    sources_at_once: int = Field(default_factory=lambda: max(2, os.cpu_count() or 1), gt=0)
    """How many sources `lakehold ingest` ingests side by side; by default one a core."""

    lease_ms: int = Field(default=15_000, gt=0)
    """How long a lease lasts without renewal, in milliseconds: after a crash, another writer waits that long."""

    lease_renew_ms: int = Field(default=5_000, gt=0)
    """How often a working writer renews its lease, in milliseconds; shorter than `lease_ms`."""

    upstream_timeout_ms: int = Field(default=15_000, gt=0)
    """How long broker, registry, captured database, Kafka Connect or Spark Connect may take to answer, in milliseconds."""

    transaction_timeout_ms: int = Field(default=600_000, ge=0)
    """How long an incomplete transaction may make no progress before an ingest fails, in milliseconds; for sources with a
    transaction topic."""

    transaction_lag_ms: int = Field(default=5_000, ge=0)
    """How late a connector's message may reach Kafka after messages sent later, in milliseconds. Where counts do not show that a
    transaction is complete, lakehold waits that long; 0: no message is late."""

    foreign_lag_ms: int = Field(default=1_000, ge=0)
    """How far behind the clock lakehold reads tables of other writers, in milliseconds: as long as their commits may take."""

    retain_history_ms: int = Field(default=24 * 60 * 60 * 1000, ge=0)
    """How much history a table without RETAIN HISTORY keeps, in milliseconds."""

    expire_grace_ms: int = Field(default=10 * 60 * 1000, ge=0)
    """How much longer than its retention history is kept, in milliseconds: as long as a read of the oldest history may take."""

    orphan_age_ms: int = Field(default=3 * 24 * 60 * 60 * 1000, ge=24 * 60 * 60 * 1000)
    """Age at which a file that no table refers to is deleted, in milliseconds: longer than any write takes."""

    driver_diff_max_rows: int = Field(default=200_000, ge=0)
    """Changed rows up to which diffs are read in the driver instead of by a Spark job; 0 reads all by Spark."""

    shared_diffs_max_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Bytes of diffs that the driver keeps for further subscriptions over the same snapshots; 0 keeps none."""

    default_max_lag_ms: int = Field(default=3 * 3_600_000, gt=0)
    """MAX LAG of a hold that declares none, in milliseconds."""

    max_max_lag_ms: int = Field(default=30 * 86_400_000, gt=0)
    """The longest MAX LAG that a hold may have, in milliseconds."""

    enable_within_timestamp_order_by_in_subscribe: bool = True
    """Whether SUBSCRIBE takes WITHIN TIMESTAMP ORDER BY."""

    enable_envelope_upsert_in_subscribe: bool = True
    """Whether SUBSCRIBE takes ENVELOPE UPSERT."""

    enable_envelope_debezium_in_subscribe: bool = True
    """Whether SUBSCRIBE takes ENVELOPE DEBEZIUM."""

    buckets: int = Field(default=4, gt=0)
    """Key buckets of a new table: the parallelism of its merges."""

    @field_validator("warehouse")
    @classmethod
    def _warehouse_as_uri(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return _as_uri(value)

    @field_validator("catalog_uri")
    @classmethod
    def _catalog_address(cls, value: str) -> str:
        if not _ADDRESS.match(value):
            raise ValueError("it must be an address such as sqlite:////data/catalog.db or https://catalog.example")
        if not value.startswith("sqlite"):
            _refuse_unreadable(value, is_url=value.startswith("http"))
        return value

    @field_validator("spark_remote")
    @classmethod
    def _spark_address(cls, value: str | None) -> str | None:
        if value is not None:
            _refuse_unreadable(value.partition(";")[0], is_url=True)
        return value

    @field_validator("check_pages")
    @classmethod
    def _check_pages_as_uri(cls, value: str | None) -> str | None:
        return _as_uri(value) if value else None

    @field_validator("schemas", "expectations", "role", "spark_remote", mode="before")
    @classmethod
    def _none_when_empty(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("schemas", "expectations")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else value.resolve()

    @field_validator("lease_renew_ms")
    @classmethod
    def _renewed_in_time(cls, value: int, info: Any) -> int:
        if value >= info.data.get("lease_ms", value + 1):
            raise ValueError(f"must be shorter than lease_ms ({info.data['lease_ms']})")
        return value

    @property
    def check_pages_uri(self) -> str:
        """Return the URI of the directory that holds the pages of checks."""
        return self.check_pages or f"{self.warehouse}/_checks"

    @property
    def warehouse_path(self) -> Path | None:
        """Return the path of a warehouse on this machine; None when it is in an object store."""
        return local_path(self.warehouse)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources of settings: arguments, environment, configuration file."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, _file_values())


def load_settings(**arguments: Any) -> Settings:
    """Load the settings.

    Args:
        **arguments: Fields of `Settings` given explicitly; None means not given.

    Raises:
        SettingsError: A value cannot be used or a name is not a setting; it says which, from where, and what fits.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise _explained(error.errors()[0], given) from error
    except SourceError as error:
        raise _no_json(error) from error


def _file_values() -> dict[str, Any]:
    """Return the settings in the configuration file, if there is one."""
    file = _config_file()
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8-sig")) if file is not None else {}
    except UnicodeDecodeError as error:
        raise SettingsError(
            f'the configuration file "{file}" is not UTF-8', detail=bad_byte(error), hint="Convert it to UTF-8."
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(
            f'the configuration file "{file}" is not TOML', detail=f"{error}.", hint="Correct the file."
        ) from error
    except OSError as error:
        raise SettingsError(f'the configuration file "{file}" cannot be read', detail=f"{error.strerror}.") from error


def _config_file() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).is_file():
        raise SettingsError(
            f'the configuration file "{named}" does not exist',
            detail=f"{CONFIG_VARIABLE} names it.",
            hint=f"Create it, or unset {CONFIG_VARIABLE}.",
        )
    path = Path(named or CONFIG_FILE)
    return path if path.is_file() else None


def _no_json(error: SourceError) -> SettingsError:
    """Return the error for a variable of the environment whose text should be a JSON object."""
    (name,) = (field for field in Settings.model_fields if f'"{field}"' in str(error))
    return SettingsError(
        f'setting "{name}" has a value that cannot be used',
        detail=f"Found a value that may hold a secret {_origin(name, {})}: it is not JSON: {error.__cause__}.",
        hint='Write a JSON object, such as {"name": "value"}.',
    )


def _explained(error: ErrorDetails, arguments: dict[str, Any]) -> SettingsError:
    name = str(error["loc"][0])
    origin = _origin(name, arguments)
    if error["type"] == "extra_forbidden":
        return SettingsError(
            f'"{name}" is not a setting',
            detail=f"Found {origin}.",
            hint=did_you_mean(name, Settings.model_fields, f"The settings are: {', '.join(Settings.model_fields)}."),
        )
    expected = error["msg"].removeprefix("Value error, ")
    found = "a value that may hold a secret" if name in _WITH_SECRETS else repr(error["input"])
    return SettingsError(
        f'setting "{".".join(map(str, error["loc"]))}" has a value that cannot be used',
        detail=f"Found {found} {origin}: {expected[:1].lower()}{expected[1:]}.",
        hint=f"{Settings.model_fields[name].description}",
    )


def _origin(name: str, arguments: dict[str, Any]) -> str:
    """Describe where a setting has its value from, as the end of a clause."""
    if name in arguments:
        return f'in the argument "{name}"'
    variables = {v.upper(): v for v in os.environ}
    if variable := variables.get(f"{ENVIRONMENT_PREFIX}{name}".upper()):
        return f"in the environment variable {variable}"
    return f'in "{_config_file()}"' if name in _file_values() else "by default"
