"""Object stores that a warehouse may be in: the jars that Spark needs for each, and properties on which both clients agree.

Spark opens files with Iceberg's own Java clients, PyIceberg with those of PyArrow. Both take most properties by the same names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakehold.settings import Settings

_S3 = ("s3", "s3a", "s3n")

_JARS = {
    **dict.fromkeys(_S3, "iceberg-aws"),
    "gs": "iceberg-gcp",
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "iceberg-azure"),
}

_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "aws.requestChecksumCalculation",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "aws.responseChecksumValidation",
}
"""What clients add to a request beyond what S3 requires: variables of the environment, and Java's properties."""

_MANIFESTS_BYTES = 32 * 2**20
"""Heap that each session keeps manifests in, for a minute after their last use."""

_ANY_REGION = "us-east-1"

CONNECTIONS = 65
"""Connections of a client of S3: with fewer than threads that read files, these would wait for each other."""

FILES_AT_ONCE = CONNECTIONS - 1
"""Files that diffs read at once: a store answers after tens of milliseconds. One connection is left for the catalog."""


def jar_set(settings: Settings) -> str | None:
    """Return the set of artifacts with the warehouse's client for Java; None if Spark needs none, or its jars have it."""
    return _JARS.get(_scheme(settings))


def is_far(settings: Settings) -> bool:
    """Return whether reading a file may take tens of milliseconds: from an object store, or by a FileIO of the user's own."""
    return settings.warehouse_path is None or "py-io-impl" in settings.catalog_properties


def store_properties(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the properties that a catalog needs for the warehouse's store, besides those that the user gave.

    A server that is not AWS's own, `s3.endpoint`, has its buckets in the path of addresses and takes any region.
    """
    if _scheme(settings) == "file":
        return {"py-io-impl": "lakehold.iceberg.local_file_io.LocalFileIO"}
    if jar_set(settings) is None:
        return {}
    found = {"py-io-impl": "lakehold.iceberg.store_file_io.StoreFileIO"}
    if _scheme(settings) not in _S3:
        return found
    given = settings.catalog_properties
    region = given.get("client.region") or given.get("s3.region")
    if "s3.endpoint" in given:
        region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or _ANY_REGION
        in_path = given.get("s3.path-style-access", "true")
        found |= {
            "s3.path-style-access": in_path,
            "s3.force-virtual-addressing": "false" if in_path == "true" else "true",
        }
    return found | ({"client.region": region} if region else {})


def checksum_variables(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables that turn off checksums which many servers other than AWS's own refuse; those of the user stay.

    Every process that opens files of the store needs them, also executors on other machines.
    """
    if _scheme(settings) not in _S3 or "s3.endpoint" not in settings.catalog_properties:
        return {}
    return {name: environment.get(name, "WHEN_REQUIRED") for name in _CHECKSUMS}


def java_options(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return options that do the same to the Java of a driver, whose environment may not be this process's."""
    return [f"-D{_CHECKSUMS[name]}={value}" for name, value in checksum_variables(settings, environment).items()]


def java_file_io(settings: Settings) -> dict[str, str]:
    """Return properties that make Iceberg open files by their scheme; catalogs in databases leave all to Hadoop."""
    if jar_set(settings) is None:
        return {}
    return {
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        # Each batch plans with the manifests of the batch before it, which never change.
        "io.manifest.cache-enabled": "true",
        "io.manifest.cache.max-total-bytes": str(_MANIFESTS_BYTES),
    }


def _scheme(settings: Settings) -> str:
    return urlsplit(settings.warehouse).scheme
