"""Settings: their sources, refusals, and the properties of a catalog for both of its clients."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from lakehold.definitions import Secret
from lakehold.errors import SettingsError
from lakehold.iceberg.properties import pyiceberg_properties, spark_catalog_conf
from lakehold.secrets import resolve, secret_value
from lakehold.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for field in Settings.model_fields:
        monkeypatch.delenv(f"LAKEHOLD_{field.upper()}", raising=False)
    monkeypatch.delenv("LAKEHOLD_CONFIG", raising=False)


def test_a_lake_needs_no_settings(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.warehouse == f"file://{tmp_path}/lake"
    assert settings.warehouse_path == tmp_path / "lake"
    assert settings.catalog_uri == f"sqlite:///{tmp_path}/lake/catalog.db"
    assert (settings.catalog_name, settings.spark_master, settings.lease_ms) == ("lake", "local[*]", 15_000)
    assert settings.schemas is None


def test_more_tables_are_written_at_once_where_each_waits_for_an_object_store() -> None:
    cores = os.cpu_count() or 1
    assert load_settings().tables_at_once == max(2, cores)
    far = load_settings(warehouse="s3://bucket/lake", catalog_uri="https://catalog.example")
    assert far.tables_at_once == max(8, cores)


def test_contracts_are_in_the_working_directory_or_in_the_configured_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "iceberg_schemas").mkdir()
    assert load_settings().schemas == tmp_path / "iceberg_schemas"
    (tmp_path / "others").mkdir()
    (tmp_path / "lakehold.toml").write_text('schemas = "others"\n')
    assert load_settings().schemas == tmp_path / "others"
    assert load_settings(schemas="").schemas is None
    monkeypatch.setenv("LAKEHOLD_SCHEMAS", "nowhere")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert error.value.detail == (
        "Found 'nowhere' in the environment variable LAKEHOLD_SCHEMAS: path does not point to a directory."
    )


def test_arguments_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lakehold.toml").write_text(
        'buckets = 2\nlease_ms = 30000\ncatalog_name = "three"\n[spark_conf]\n"spark.ui.enabled" = "true"\n'
    )
    monkeypatch.setenv("LAKEHOLD_LEASE_MS", "20000")
    monkeypatch.setenv("LAKEHOLD_CATALOG_NAME", "two")
    settings = load_settings(catalog_name="one", buckets=None)
    assert (settings.catalog_name, settings.lease_ms, settings.buckets) == ("one", 20_000, 2)
    assert settings.spark_conf == {"spark.ui.enabled": "true"}


def test_the_file_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_CONFIG", str(tmp_path / "other.toml"))
    with pytest.raises(SettingsError, match=r'"[^"]*other\.toml" does not exist'):
        load_settings()
    (tmp_path / "other.toml").write_text("buckets = 16\n")
    assert load_settings().buckets == 16


@pytest.mark.parametrize(
    ("origin", "detail"),
    [
        ("argument", "Found 'many' in the argument \"buckets\": input should be a valid integer"),
        ("environment", "Found 'many' in the environment variable LAKEHOLD_BUCKETS: input should be a valid integer"),
        ("file", "Found 'many' in \"lakehold.toml\": input should be a valid integer"),
    ],
)
def test_an_unusable_value_is_named_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, detail: str
) -> None:
    if origin == "environment":
        monkeypatch.setenv("LAKEHOLD_BUCKETS", "many")
    if origin == "file":
        (tmp_path / "lakehold.toml").write_text('buckets = "many"\n')
    with pytest.raises(SettingsError) as error:
        load_settings(buckets="many" if origin == "argument" else None)
    assert error.value.message == 'setting "buckets" has a value that cannot be used'
    assert error.value.detail.startswith(detail)
    assert "parallelism" in error.value.hint


def test_a_mistyped_name_is_answered_with_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "lakehold.toml").write_text("lease_sm = 1\n")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert (error.value.message, error.value.hint) == ('"lease_sm" is not a setting', 'Did you mean "lease_ms"?')


@pytest.mark.parametrize(
    "text", ["buckets = = 2\n", "buckets\n", pytest.param(f"buckets = {'[' * 5_000}\n", id="deep")]
)
def test_a_file_that_is_no_toml_is_an_error_for_people(tmp_path: Path, text: str) -> None:
    (tmp_path / "lakehold.toml").write_text(text)
    with pytest.raises(SettingsError, match=r'the configuration file "lakehold\.toml" is not TOML'):
        load_settings()


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "lakehold.toml").write_text("buckets = 7\n", encoding="utf-8-sig")
    assert load_settings().buckets == 7


def test_a_file_that_is_not_utf_8_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / "lakehold.toml").write_bytes(b'warehouse = "caf\xe9"\n')
    with pytest.raises(SettingsError, match=r'the configuration file "lakehold\.toml" is not UTF-8') as error:
        load_settings()
    assert error.value.detail == "Byte 16, counted from 0, is 0xE9: invalid continuation byte."


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError) as error:
        load_settings(lease_ms=5_000, lease_renew_ms=5_000)
    assert "must be shorter than lease_ms (5000)" in error.value.detail
    with pytest.raises(SettingsError, match=r'a lake in "s3://bucket/lake" needs a catalog'):
        load_settings(warehouse="s3://bucket/lake/")


def test_a_default_that_does_not_fit_another_setting_is_named_as_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_LEASE_MS", "1000")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert error.value.message == 'setting "lease_renew_ms" has a value that cannot be used'
    assert error.value.detail == "Found 5000 by default: must be shorter than lease_ms (1000)."


@pytest.mark.parametrize("name", ["spark_conf", "catalog_properties"])
def test_a_variable_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"LAKEHOLD_{name.upper()}", "{secret: 1}")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert error.value.message == f'setting "{name}" has a value that cannot be used'
    assert (
        f"in the environment variable LAKEHOLD_{name.upper()}: it is not JSON: Expecting property" in error.value.detail
    )
    assert "JSON object" in error.value.hint
    assert "secret" not in str(error.value).replace("may hold a secret", "")


@pytest.mark.parametrize("setting", ["warehouse", "check_pages"])
@pytest.mark.parametrize("path", ["data/lake#1", "/data/lake?1", "file:///data/lake#1"])
def test_a_path_that_a_uri_would_cut_is_refused(setting: str, path: str) -> None:
    with pytest.raises(SettingsError) as error:
        load_settings(**{setting: path})
    assert f"Found {path!r}" in error.value.detail
    assert "neither ? nor #" in error.value.detail


@pytest.mark.parametrize(
    "text",
    [
        "[catalog_properties]\ncredential = 12345\n",
        'catalog_properties = "credential=12345"\n',
        '[spark_conf]\n"spark.hadoop.fs.s3a.secret.key" = 12345\n',
        "catalog_uri = [12345]\n",
        "spark_remote = 12345\n",
    ],
)
def test_a_refused_value_that_may_hold_a_secret_is_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "lakehold.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert 'in "lakehold.toml": ' in error.value.detail
    assert "12345" not in "".join(traceback.format_exception(error.value))


def test_a_refused_key_of_a_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "lakehold.toml").write_text("[catalog_properties]\ncredential = 12345\n")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert error.value.message == 'setting "catalog_properties.credential" has a value that cannot be used'


@pytest.mark.parametrize("value", ["", "/data/catalog.db", "catalog.db"])
def test_a_catalog_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LAKEHOLD_CATALOG_URI", value)
    with pytest.raises(SettingsError, match='"catalog_uri" has a value that cannot be used') as error:
        load_settings()
    assert "it must be an address such as sqlite:////data/catalog.db" in error.value.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("catalog_uri", "postgresql://db:port12345/lake"),
        ("catalog_uri", "https://reader:pass12345/word@catalog.example"),
        ("catalog_uri", "http://[::12345/catalog"),
        ("spark_remote", "sc://spark:port12345"),
        ("spark_remote", "sc://[::12345"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"LAKEHOLD_{name.upper()}", value)
    with pytest.raises(SettingsError, match=f'"{name}" has a value that cannot be used') as error:
        load_settings()
    assert "its host or port cannot be read" in error.value.detail
    assert "12345" not in "".join(traceback.format_exception(error.value))


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_secrets_come_from_the_environment_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as error:
        secret_value(Secret("kafka_password"))
    assert error.value.code == "secret-missing"
    assert "kafka_password nor LAKEHOLD_SECRET_KAFKA_PASSWORD" in error.value.detail
    monkeypatch.setenv("LAKEHOLD_SECRET_KAFKA_PASSWORD", "second")
    assert resolve({"password": Secret("kafka_password"), "ssl": True, "port": 9}) == {
        "password": "second",
        "ssl": "true",
        "port": "9",
    }
    monkeypatch.setenv("kafka_password", "first")
    assert secret_value(Secret("kafka_password")) == "first"


@pytest.mark.parametrize(
    ("arguments", "pyiceberg", "spark"),
    [
        pytest.param(
            {"warehouse": "/lake"},
            {"uri": "sqlite:////lake/catalog.db?timeout=30", "warehouse": "file:///lake"},
            {
                "": "org.apache.iceberg.spark.SparkCatalog",
                ".type": "jdbc",
                ".uri": "jdbc:sqlite:/lake/catalog.db?journal_mode=WAL&busy_timeout=30000",
                ".jdbc.schema-version": "V1",
                ".warehouse": "file:///lake",
                ".cache-enabled": "false",
            },
            id="sqlite",
        ),
        pytest.param(
            {"warehouse": "s3://b/lake", "catalog_uri": "postgresql+psycopg2://me:p%40ss@db:5433/cat"},
            {"uri": "postgresql+psycopg2://me:p%40ss@db:5433/cat", "warehouse": "s3://b/lake"},
            {
                ".type": "jdbc",
                ".uri": "jdbc:postgresql://db:5433/cat",
                ".jdbc.user": "me",
                ".jdbc.password": "p@ss",
                ".jdbc.tcpKeepAlive": "true",
                ".warehouse": "s3://b/lake",
            },
            id="postgresql",
        ),
        pytest.param(
            {
                "warehouse": "s3://b/lake",
                "catalog_uri": "postgresql+psycopg2://[::1]:5433/cat?sslmode=verify-full&sslrootcert=/my ca.pem&sslcert=/c.pem"
                "&sslkey=/k.pk8&channel_binding=require&options=-csearch_path%3Dlake&connect_timeout=5&application_name=a%26b",
            },
            {},
            {
                ".uri": "jdbc:postgresql://[::1]:5433/cat?sslmode=verify-full&sslrootcert=%2Fmy%20ca.pem&sslcert=%2Fc.pem"
                "&sslkey=%2Fk.pk8&channelBinding=require&options=-csearch_path%3Dlake&connectTimeout=5&ApplicationName=a%26b"
            },
            id="parameters",
        ),
        pytest.param(
            {
                "warehouse": "s3://b/lake",
                "catalog_uri": "postgresql+psycopg2://db/cat?sslmode=require&sslrootcert=ca.pem",
            },
            {},
            {".uri": "jdbc:postgresql://db/cat?sslmode=verify-ca&sslrootcert=ca.pem"},
            id="an authority is not ignored",
        ),
        pytest.param(
            {"warehouse": "s3://b/lake", "catalog_uri": "https://catalog:8181"},
            {
                "py-catalog-impl": "lakehold.iceberg.rest_catalog.AnyTypeRestCatalog",
                "uri": "https://catalog:8181",
                "warehouse": "s3://b/lake",
            },
            {
                ".type": "rest",
                ".uri": "https://catalog:8181",
                ".warehouse": "s3://b/lake",
                ".rest.client.socket-timeout-ms": "15000",
            },
            id="rest",
        ),
        pytest.param(
            {
                "warehouse": "s3://b/lake",
                "catalog_uri": "https://catalog:8181",
                "catalog_properties": {"warehouse": "prod", "credential": "id:secret"},
            },
            {"uri": "https://catalog:8181", "warehouse": "prod", "credential": "id:secret"},
            {".uri": "https://catalog:8181", ".warehouse": "prod", ".credential": "id:secret"},
            id="further properties",
        ),
    ],
)
def test_spark_and_pyiceberg_open_the_same_catalog(
    arguments: dict[str, Any], pyiceberg: dict[str, str], spark: dict[str, str]
) -> None:
    settings = load_settings(catalog_name="main", **arguments)
    assert pyiceberg.items() <= pyiceberg_properties(settings).items()
    assert {f"spark.sql.catalog.main{k}": v for k, v in spark.items()}.items() <= spark_catalog_conf(settings).items()


@pytest.mark.parametrize(
    ("catalog_uri", "named"),
    [
        ("postgresql+psycopg2://db/cat?sslmode=require&host=/run/postgresql&password=tok", "host, password"),
        ("postgresql+psycopg2://db/cat?sslmode=require&sslmode=disable", "sslmode"),
        ("sqlite:////lake/catalog.db?mode=ro&uri=true", "mode, uri"),
    ],
)
def test_parameters_that_spark_would_not_have_are_refused(catalog_uri: str, named: str) -> None:
    settings = load_settings(warehouse="/lake", catalog_uri=catalog_uri)
    for properties in (pyiceberg_properties, spark_catalog_conf):
        with pytest.raises(SettingsError, match=f"cannot give to Spark: {named}\n") as refused:
            properties(settings)
        assert "tok" not in f"{refused.value} {refused.value.detail} {refused.value.hint}"


def test_a_list_of_secrets_admits_no_other_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRETS", "pg_password, LAKEHOLD_SECRET_KAFKA_*")
    for name in ("AWS_SECRET_ACCESS_KEY", "pg_password", "LAKEHOLD_SECRET_KAFKA_PASSWORD", "kafka_user"):
        monkeypatch.setenv(name, f"value of {name}")
    assert secret_value(Secret("pg_password")) == "value of pg_password"
    assert secret_value(Secret("kafka_password")) == "value of LAKEHOLD_SECRET_KAFKA_PASSWORD"
    with pytest.raises(SettingsError, match='secret "AWS_SECRET_ACCESS_KEY" may not be read') as denied:
        secret_value(Secret("AWS_SECRET_ACCESS_KEY"))
    assert denied.value.code == "secret-denied"
    with pytest.raises(SettingsError, match='secret "kafka_user" has no value') as missing:
        secret_value(Secret("kafka_user"))
    assert missing.value.detail.startswith("Environment variable LAKEHOLD_SECRET_KAFKA_USER is not set")
    monkeypatch.setenv("LAKEHOLD_SECRETS", "")
    with pytest.raises(SettingsError, match="may not be read"):
        secret_value(Secret("pg_password"))
