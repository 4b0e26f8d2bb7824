"""Properties and jars for warehouses in object stores, and hints for errors of their clients."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSystem
from pyiceberg.io import load_file_io

from lakehold import artifacts
from lakehold.errors import UpstreamUnavailable
from lakehold.iceberg import store_file_io
from lakehold.iceberg.object_stores import checksum_variables, jar_set, java_file_io, java_options, store_properties
from lakehold.iceberg.properties import pyiceberg_properties, spark_catalog_conf
from lakehold.iceberg.store_errors import store_hint
from lakehold.iceberg.store_file_io import StoreFileIO
from lakehold.session import session_conf
from lakehold.settings import Settings, load_settings
from lakehold.spark_errors import explained
from lakehold.state.catalog_opening import open_catalog

CATALOG = "postgresql+psycopg2://db/lake"
ENDPOINT = {"s3.endpoint": "http://127.0.0.1:9000"}

NOBODY = "127.0.0.1:9"
"""An address that refuses connections."""
AZURE = "abfss://container@account.dfs.core.windows.net/lake"
NO_GCS = {
    "gcs.service.host": f"http://{NOBODY}",
    "gcs.oauth2.token": "token",
    "gcs.oauth2.token-expires-at": f"{2**41}",
}
NO_AZURE = {
    "adls.account-key": "a2V5",
    "adls.blob-storage-authority": NOBODY,
    "adls.dfs-storage-authority": NOBODY,
    "adls.blob-storage-scheme": "http",
    "adls.dfs-storage-scheme": "http",
}


def lake(warehouse: str, **properties: str) -> Settings:
    return load_settings(warehouse=warehouse, catalog_uri=CATALOG, catalog_properties=properties)


@pytest.mark.parametrize(
    ("warehouse", "expected"),
    [
        ("/data/lake", None),
        ("hdfs://name/lake", None),
        ("s3://bucket/lake", "iceberg-aws"),
        ("s3a://bucket/lake", "iceberg-aws"),
        ("gs://bucket/lake", "iceberg-gcp"),
        ("abfss://container@account.dfs.core.windows.net/lake", "iceberg-azure"),
    ],
)
def test_spark_gets_the_jars_of_the_store_of_the_warehouse(warehouse: str, expected: str | None) -> None:
    assert jar_set(lake(warehouse)) == expected
    assert bool(java_file_io(lake(warehouse))) == (expected is not None)


def test_a_session_has_the_client_of_its_store_only() -> None:
    (client,) = artifacts.jars("iceberg-aws")
    assert str(client) in session_conf(lake("s3://bucket/lake"))["spark.jars"].split(",")
    assert str(client) not in session_conf(load_settings(warehouse="/data/lake"))["spark.jars"].split(",")


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({}, {}, {}),
        ({}, {"AWS_REGION": "eu-west-1"}, {}),
        ({"s3.region": "eu-west-1"}, {}, {"client.region": "eu-west-1"}),
        (ENDPOINT, {}, {"client.region": "us-east-1", "s3.path-style-access": "true"}),
        (ENDPOINT, {"AWS_REGION": "eu-west-1"}, {"client.region": "eu-west-1", "s3.path-style-access": "true"}),
        (
            ENDPOINT | {"s3.path-style-access": "false", "client.region": "home"},
            {"AWS_REGION": "eu-west-1"},
            {"client.region": "home", "s3.force-virtual-addressing": "true"},
        ),
    ],
    ids=["aws", "region of the environment", "region", "server", "server and region", "server with host names"],
)
def test_both_clients_address_s3_alike(
    given: dict[str, str], environment: dict[str, str], expected: dict[str, Any]
) -> None:
    found = store_properties(lake("s3://bucket/lake", **given), environment)
    assert expected.items() <= found.items()
    if "s3.endpoint" not in given:
        assert found.keys() == {*expected, "py-io-impl"}


def test_the_user_names_the_store_once_and_decides() -> None:
    settings = lake("s3://bucket/lake", **ENDPOINT, **{"io-impl": "my.FileIO"})
    of_spark, of_pyiceberg = spark_catalog_conf(settings), pyiceberg_properties(settings)
    for name in ("s3.endpoint", "s3.path-style-access", "client.region"):
        assert of_spark[f"spark.sql.catalog.lake.{name}"] == of_pyiceberg[name]
    assert of_spark["spark.sql.catalog.lake.io-impl"] == "my.FileIO"
    assert "io-impl" not in spark_catalog_conf(load_settings(warehouse="/data/lake"))


def test_small_files_are_written_in_one_request() -> None:
    io = load_file_io(pyiceberg_properties(lake("s3://bucket/lake", **ENDPOINT)), "s3://bucket/lake/file")
    assert isinstance(io, StoreFileIO)
    _, (options,) = io.fs_by_scheme("s3", "bucket").__reduce__()
    assert (options["allow_delayed_open"], options["endpoint_override"]) == (True, ENDPOINT["s3.endpoint"])


def test_the_tables_of_a_lake_share_a_client_that_no_fork_inherits() -> None:
    properties = pyiceberg_properties(lake("s3://bucket/lake", **ENDPOINT))

    def client(**of_table: str) -> FileSystem:
        io = load_file_io({**properties, **of_table}, "s3://bucket/lake/file")
        assert isinstance(io, StoreFileIO)
        return io.fs_by_scheme("s3", "bucket")

    with ThreadPoolExecutor(8) as threads:
        (shared,) = {id(made): made for made in threads.map(lambda n: client(a_property=f"of {n}"), range(8))}.values()
    assert client() is shared
    assert client(**{"s3.region": "another"}) is not shared
    child = os.fork()
    if child == 0:
        os._exit(client() is shared)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_azure_gets_the_container_as_the_first_folder_and_the_account_from_the_location() -> None:
    location = "abfss://container@account.dfs.core.windows.net/lake/shop/file"
    assert StoreFileIO.parse_location(location)[2] == "container/lake/shop/file"
    assert StoreFileIO.parse_location("s3://bucket/lake/file")[2] == "bucket/lake/file"
    assert StoreFileIO.parse_location("file:///lake/file")[2] == "/lake/file"
    with pytest.raises(OSError, match=r"https://account\.blob\.core\.windows\.net/container"):
        load_file_io(pyiceberg_properties(lake(location)), location).new_input(location).exists()


@pytest.mark.parametrize(
    ("warehouse", "properties", "words", "to_set"),
    [
        ("gs://bucket/lake", {}, "Could not create a OAuth2 access token", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://bucket/lake", NO_GCS, "Could not connect to server", "GOOGLE_APPLICATION_CREDENTIALS"),
        (AZURE, {}, "Failed to get token from DefaultAzureCredential", "AZURE_CLIENT_ID"),
        (AZURE, NO_AZURE, "Could not connect to server", "AZURE_CLIENT_ID"),
    ],
    ids=["google without credentials", "google away", "azure without credentials", "azure away"],
)
def test_a_store_without_credentials_or_an_answer_is_named_within_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, warehouse: str, properties: dict[str, str], words: str, to_set: str
) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # may have credentials of the user
    monkeypatch.setenv("GCE_METADATA_ROOT", NOBODY)
    assert store_file_io.RETRIES_FOR.total_seconds() <= 10
    monkeypatch.setattr(store_file_io, "RETRIES_FOR", timedelta(seconds=1))
    settings = load_settings(
        warehouse=warehouse, catalog_uri=f"sqlite:///{tmp_path}/catalog.db", catalog_properties=properties
    )
    began_s = time.monotonic()
    with pytest.raises(UpstreamUnavailable) as refused:
        open_catalog(settings)
    assert time.monotonic() - began_s < 30
    assert (refused.value.code, f'the lake in "{warehouse}"' in refused.value.message) == ("store-failed", True)
    assert words in refused.value.detail
    assert to_set in refused.value.hint


@pytest.mark.parametrize(
    ("properties", "environment", "expected"),
    [
        ({}, {}, None),
        (ENDPOINT, {}, "WHEN_REQUIRED"),
        (ENDPOINT, {"AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_SUPPORTED"}, "WHEN_SUPPORTED"),
    ],
    ids=["aws", "server", "the user decides"],
)
def test_only_servers_that_are_not_of_aws_get_fewer_checksums(
    properties: dict[str, str], environment: dict[str, str], expected: str | None
) -> None:
    settings = lake("s3://bucket/lake", **properties)
    assert checksum_variables(settings, environment).get("AWS_REQUEST_CHECKSUM_CALCULATION") == expected
    option = f"-Daws.requestChecksumCalculation={expected}"
    assert (option in java_options(settings, environment)) == (expected is not None)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("When reading information for key 'k' in bucket 'b': AWS Error ACCESS_DENIED", "AWS_ACCESS_KEY_ID"),
        ("java.lang.NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException", "fetch iceberg-aws"),
        ("java.lang.NoClassDefFoundError: com/google/cloud/storage/Storage", "fetch iceberg-gcp"),
        ("java.lang.ClassNotFoundException: com.azure.core.Client", "fetch iceberg-azure"),
        (
            'Caused by: org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
            "iceberg-aws",
        ),
        ('org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs"', "fetch iceberg-gcp"),
        ('org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "abfss"', "iceberg-azure"),
        ("software.amazon.awssdk.core.exception.SdkClientException: Unable to load region from", "AWS_REGION"),
        (
            "software.amazon.awssdk.services.s3.model.NoSuchBucketException: (Service: S3, Status Code: 404)",
            "s3.endpoint",
        ),
        ("google::cloud::Status(NOT_FOUND)", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("Check for Hierarchical Namespace support failed. Azure Error: [] Could not connect", "AZURE_CLIENT_ID"),
    ],
)
def test_an_error_of_a_store_says_what_to_change(message: str, hint: str) -> None:
    assert hint in store_hint(message)
    error = explained(f"py4j.protocol.Py4JJavaError: An error occurred while calling o1.sql.\n: {message}")
    assert (error.code, error.message) == ("store-failed", "the object store does not work")
    assert hint in error.hint


def test_other_errors_have_no_hint_of_a_store() -> None:
    assert store_hint("[TABLE_OR_VIEW_NOT_FOUND] The table or view `a` cannot be found.") == ""
