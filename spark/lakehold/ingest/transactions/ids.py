"""Find the transactions that ids of events and of ENDs name, of whole columns at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehold.model.places import POSTGRES_ID


def transactions_of(transaction_ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the transaction that each id names; null of null."""
    found = pc.extract_regex(transaction_ids, POSTGRES_ID)
    return pc.coalesce(pc.struct_field(found, "transaction"), transaction_ids)
