"""Errors of object stores: recognised by the words of their clients for Python and Java, and what to do about each."""

from __future__ import annotations

import re

from lakehold.errors import UpstreamUnavailable

_JARS = (
    "Start Spark with LAKEHOLD_WAREHOUSE in this store, which brings the jars, or add them to spark.jars: "
    "python -m lakehold.artifacts fetch {jars} writes where they are."
)
_NO_CLASS = "(NoClassDefFoundError|ClassNotFoundException): "
_NO_SYSTEM = "No FileSystem for scheme "
"""Words of Hadoop, which Iceberg asks for a store whose client it cannot load."""
_HINTS = (
    (rf'{_NO_CLASS}software.amazon.awssdk|{_NO_SYSTEM}"s3', _JARS.format(jars="iceberg-aws")),
    (rf'{_NO_CLASS}com.google.(cloud|auth)|{_NO_SYSTEM}"gs"', _JARS.format(jars="iceberg-gcp")),
    (rf'{_NO_CLASS}com.azure|{_NO_SYSTEM}"(abfs|wasb)', _JARS.format(jars="iceberg-azure")),
    (r"Unable to load region", "Set AWS_REGION, or client.region in LAKEHOLD_CATALOG_PROPERTIES."),
    (
        r"AWS Error|Service: S3,|awssdk",
        "Check that the bucket of LAKEHOLD_WAREHOUSE exists, that s3.endpoint in LAKEHOLD_CATALOG_PROPERTIES is right, and that "
        "lakehold and Spark have credentials which may read, write, list and delete there: AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or s3.access-key-id and s3.secret-access-key in LAKEHOLD_CATALOG_PROPERTIES.",
    ),
    (
        r"google::cloud|com\.google\.cloud\.storage",
        "Check that the bucket of LAKEHOLD_WAREHOUSE exists, and set GOOGLE_APPLICATION_CREDENTIALS, for lakehold and for Spark, "
        "to the file of a key which may read, write, list and delete there.",
    ),
    (
        r"Azure Error|Azure::Core|Azure4Core|AzureFileSystem|com\.azure",
        "Check that the container and the account of LAKEHOLD_WAREHOUSE exist, and set AZURE_CLIENT_ID, AZURE_TENANT_ID and "
        "AZURE_CLIENT_SECRET, for lakehold and for Spark, to credentials which may read, write, list and delete there.",
    ),
)

_DENIALS = re.compile(
    r"ACCESS_DENIED|NO_SUCH_BUCKET|PERMISSION_DENIED|AuthorizationPermissionMismatch|ContainerNotFound|HTTP status 40[34]"
)

_INTERNALS = re.compile(r" error_info=\{.*")
"""Words of Google's client that repeat what it said before."""


def store_hint(message: str) -> str:
    """Return what to do about an error of an object store; empty if `message` is about something else."""
    return next((hint for pattern, hint in _HINTS if re.search(pattern, message)), "")


def is_denied(message: str) -> bool:
    """Return whether an error of an object store is about what was asked for: it is denied, or its bucket does not exist."""
    return bool(store_hint(message)) and _DENIALS.search(message) is not None


def store_failed(message: str, of: str = "") -> UpstreamUnavailable:
    """Return the error for an object store that refuses a request or does not answer.

    Args:
        message: The message of the store's client, which has a hint.
        of: The table or the lake whose files are in the store; empty if unknown.
    """
    line = next(line for line in (*message.splitlines(), message) if store_hint(line))
    reason = _INTERNALS.sub("", line).strip().rstrip(".")
    return UpstreamUnavailable(
        f"the object store{f' of {of}' if of else ''} does not work",
        code="store-failed",
        detail=f"{reason}.",
        hint=store_hint(reason),
    )
