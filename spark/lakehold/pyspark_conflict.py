"""The conflict of `pyspark` with `pyspark-client`, whose files have the same names: those installed last win.

Airflow's provider for Spark requires `pyspark-client`. Mixed with another version's files, `pyspark` often cannot be imported.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from importlib import metadata

from lakehold.errors import EnvironmentMissing


def refuse_overwritten_pyspark() -> None:
    """Raise an error if `pyspark-client` has overwritten files of `pyspark`; takes no time where it is not installed.

    Raises:
        EnvironmentMissing: The error says which packages to remove and to install again.
    """
    try:
        client, own = metadata.distribution("pyspark-client"), metadata.distribution("pyspark")
    except metadata.PackageNotFoundError:
        return
    expected = _sums(own)
    differing = [name for name, digest in _sums(client).items() if expected.get(name, digest) != digest]
    overwritten = [name for name in differing if _sum_found(own, name) != expected[name]]
    if overwritten:
        raise EnvironmentMissing(
            "pyspark-client has overwritten pyspark",
            code="pyspark-overwritten",
            detail=f"Files of pyspark {own.version}, such as {min(overwritten)}, are now those of pyspark-client "
            f"{client.version}: {len(overwritten)} in all. pyspark contains all of pyspark-client, which Airflow's provider "
            "for Spark requires.",
            hint="Run pip uninstall --yes pyspark-client, then "
            f"pip install --force-reinstall --no-deps pyspark=={own.version}.",
        )


def _sums(package: metadata.Distribution) -> dict[str, str]:
    """Return the SHA-256 of the package's Python files, as its record writes them."""
    return {str(file): file.hash.value for file in package.files or () if file.hash and file.suffix == ".py"}


def _sum_found(package: metadata.Distribution, name: str) -> str | None:
    try:
        with open(str(package.locate_file(name)), "rb") as content:
            digest = hashlib.file_digest(content, "sha256").digest()
    except FileNotFoundError:
        return None
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
