"""Queries of expectations, rewritten to read other tables at snapshots."""

from __future__ import annotations

import pytest

from lakehold.sql.query.query_of_snapshots import query_of_snapshots

SNAPSHOTS = {"shop.customers": 7, "shop.empty": None}


@pytest.mark.parametrize(
    ("query", "rewritten"),
    [
        ("SELECT * FROM {batch} WHERE id < 0", ""),
        (
            "SELECT o.* FROM {batch} o LEFT ANTI JOIN shop.customers c ON c.id = o.customer",
            "SELECT o.* FROM {batch} o LEFT ANTI JOIN `lake`.`shop`.`customers` VERSION AS OF 7 c ON c.id = o.customer",
        ),
        (
            "SELECT * FROM {batch} WHERE id IN (SELECT empty.id FROM lake.shop.empty) AND note = '{{x}}'",
            "SELECT * FROM {batch} WHERE id IN (SELECT empty.id FROM (SELECT * FROM `lake`.`shop`.`empty` LIMIT 0) AS `empty`)"
            " AND note = '{{x}}'",
        ),
        (
            "SELECT {batch}.* FROM {batch} WHERE EXISTS (SELECT 1 FROM shop.customers WHERE shop.customers.id = {batch}.id)",
            "SELECT          {batch}.* FROM {batch} WHERE EXISTS (SELECT 1 FROM `lake`.`shop`.`customers` VERSION AS OF 7"
            " WHERE      customers.id =          {batch}.id)",
        ),
        ("SELECT * FROM {batch} JOIN shop.customers VERSION AS OF 3 USING (id)", ""),
        ("SELECT * FROM {batch} JOIN a_temporary_view USING (id)", ""),
        ("SELECT * FROM {batch}; SELECT * FROM shop.customers", ""),
        ("SELECT FROM WHERE", ""),
    ],
)
def test_a_query_reads_the_snapshots_of_its_other_tables(query: str, rewritten: str) -> None:
    assert query_of_snapshots(query, "lake", SNAPSHOTS.__getitem__) == (rewritten or query)
