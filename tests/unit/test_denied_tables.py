"""A table to which the catalog or the store denies access: an error of the table, not of the catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError, ServiceUnavailableError

from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.iceberg import attempts


def catalog_that_raises(error: Exception) -> Catalog:
    def load_table(_: str) -> Any:
        raise error

    return cast(Catalog, SimpleNamespace(load_table=load_table))


DENIED = [
    ForbiddenError("no right to s.t"),
    PermissionError(13, "Permission denied"),
    OSError(
        "When reading information for key 'a' in bucket 'b': AWS Error ACCESS_DENIED during HeadObject operation: No body."
    ),
    OSError("When reading information for key 'a' in bucket 'b': AWS Error NO_SUCH_BUCKET during GetObject operation."),
    OSError(
        "When getting information for key 'a' in bucket 'b': AWS Error UNKNOWN (HTTP status 403) during HeadObject."
    ),
]


@pytest.mark.parametrize("error", DENIED, ids=range(len(DENIED)))
def test_a_denied_table_is_unreadable(error: Exception) -> None:
    with pytest.raises(DefinitionError, match="denies it") as refused:
        attempts.read(catalog_that_raises(error), "s.t", lambda table: table)
    assert refused.value.code == "table-unreadable"
    assert '"s.t"' in refused.value.message


def test_a_store_that_denies_a_table_of_lakehold_denies_the_lake() -> None:
    with pytest.raises(UpstreamUnavailable) as refused:
        attempts.read(catalog_that_raises(DENIED[2]), "mz_catalog.mz_objects", lambda table: table)
    assert refused.value.code == "store-failed"


def test_a_busy_store_is_unavailable() -> None:
    busy = OSError(
        "When reading key 'a' in bucket 'b': AWS Error SLOW_DOWN during GetObject operation: Reduce your rate."
    )
    with pytest.raises(UpstreamUnavailable) as refused:
        attempts.read(catalog_that_raises(busy), "s.t", lambda table: table)
    assert refused.value.code == "store-failed"


def test_a_catalog_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(UpstreamUnavailable):
        attempts.read(catalog_that_raises(ServiceUnavailableError("down")), "s.t", lambda table: table)
