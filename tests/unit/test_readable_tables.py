"""Tokens that are limited to tables: what a statement reads is found in its text, whatever hides it."""

from __future__ import annotations

import pytest

from lakehold.errors import LakeholdError, PermissionDenied
from lakehold.serve.admission import admitted
from lakehold.serve.readable_tables import ReadableTables

READABLE = ReadableTables(frozenset({"shop.t", "crm.*"}))


def check(text: str) -> None:
    READABLE.check(admitted(text, "lake", lambda name: name == "elsewhere"), tuple)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT * FROM shop.t JOIN lake.crm.a USING (id) AS OF LATEST",
        "SELECT * FROM shop.t.snapshots, lake.shop.t.history, crm.b VERSION AS OF 'tag'",
        "SELECT * FROM shop.t.all_Delete_files, shop.t.tag_hold_h",
        "WITH x AS (SELECT * FROM shop.t), y AS (SELECT * FROM X) SELECT * FROM y, range(3), LATERAL (SELECT * FROM x)",
        "SELECT * FROM shop.t, LATERAL explode(a) x, (VALUES (1, now())) v, LATERAL VALUES (2) LATERAL VIEW stack(2, a, b) y",
        "SELECT mz_diff FROM CHANGES(shop.t AS OF 1), CHANGES(crm.a AS OF 1) c",
        "SELECT table FROM shop.t LATERAL VIEW explode(array(1)) s AS stream",
        "EXPLAIN FORMATTED SELECT * FROM shop.t",
        "SUBSCRIBE shop.t",
        "SUBSCRIBE (SELECT a.id FROM lake.shop.t a JOIN crm.b USING (id))",
        "EXPLAIN SUBSCRIBE crm.b",
        "CREATE HOLD h ON shop.t, crm.b",
    ],
)
def test_its_tables_can_be_read_in_every_way(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM other.s",
        "SELECT * FROM lake.other.s",
        "SELECT * FROM shop.t UNION ALL SELECT * FROM other.s AS OF LATEST",
        "SELECT * FROM shop.s, shop.t",
        "SELECT * FROM `crm.x`.s",
        "SELECT * FROM crm.`x.s`",
        "SELECT * FROM `shop.t`",
        "SELECT * FROM SHOP.t",
        "SELECT * FROM t",
        "SELECT * FROM mz_diff, CHANGES(shop.t AS OF 1)",
        "SELECT * FROM mz_catalog.mz_holds",
        "SELECT * FROM lake.mz_internal.lakehold_state",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM other.s.snapshots",
        "SELECT * FROM lake.other.s.all_data_files",
        "SELECT * FROM shop.t.archive",
        "SELECT * FROM lake.shop.t.archive",
        "SELECT * FROM shop.t.archive.snapshots",
        "SELECT * FROM other.s VERSION AS OF 1",
        "SELECT * FROM other.s TIMESTAMP AS OF '2024-01-01'",
        "SELECT * FROM shop.t WHERE id IN (SELECT id FROM other.s)",
        "SELECT (SELECT max(id) FROM other.s) AS m",
        "SELECT EXISTS(FROM other.s)",
        "SELECT * FROM shop.t ORDER BY (SELECT max(id) FROM other.s)",
        "SELECT * FROM shop.t, LATERAL (SELECT * FROM other.s)",
        "SELECT * FROM (shop.t JOIN other.s)",
        "SELECT count(*) FROM other.s PIVOT (sum(a) FOR b IN (1))",
        "SELECT * FROM shop.t MINUS SELECT * FROM other.s",
        "WITH x AS (SELECT * FROM other.s) SELECT * FROM shop.t",
        "WITH s AS (SELECT * FROM s) SELECT * FROM s",
        "SELECT * FROM shop.t, s WHERE EXISTS (WITH s AS (SELECT 1) SELECT * FROM s)",
        "WITH RECURSIVE x AS (SELECT * FROM other.s UNION ALL SELECT * FROM x) SELECT * FROM x",
        "FROM shop.t |> JOIN other.s USING (id)",
        "SELECT * FROM shop.t /* /* */ */ , other.s -- */",
        "SELECT * FROM explode(TABLE(other.s))",
        "SELECT * FROM CHANGES(other.s AS OF 1)",
        "SELECT * FROM CHANGES(shop.t AS OF 1) WHERE id IN (SELECT id FROM CHANGES(lake.other.s AS OF 1, NET))",
        "EXPLAIN SELECT * FROM other.s",
        "EXPLAIN EXTENDED SELECT * FROM CHANGES(other.s AS OF 1)",
        "SUBSCRIBE other.s",
        "SUBSCRIBE lake.`other`.s",
        "SUBSCRIBE (SELECT * FROM shop.t WHERE id IN (SELECT id FROM other.s))",
        "EXPLAIN SUBSCRIBE other.s",
        "DESCRIBE other.s",
        "DESCRIBE QUERY SELECT * FROM other.s",
        "DESCRIBE (SELECT * FROM shop.t, other.s)",
        "DESCRIBE shop.t",
        "SHOW TABLES IN other",
        "SHOW COLUMNS IN other.s",
        "SHOW CREATE TABLE other.s",
        "SHOW HOLDS",
        "SHOW GRANTS",
        "SHOW SOURCES",
        "CREATE HOLD h ON shop.t, other.s",
        "DROP HOLD IF EXISTS anybodys",
        "ALTER HOLD anybodys ADVANCE TO 1",
    ],
)
def test_nothing_else_can_be_read_in_any_way(text: str) -> None:
    with pytest.raises(PermissionDenied) as refused:
        check(text)
    assert (refused.value.code, refused.value.detail) == ("tables-refused", "Its tables: crm.*, shop.t.")


@pytest.mark.parametrize(
    "text",
    [
        "SUBSCRIBE shop.t WITHIN TIMESTAMP ORDER BY id IN ( /* */ SELECT id FROM other.s)",
        "TABLE other.s",
        "SELECT (TABLE other.s)",
        "SELECT * FROM STREAM other.s",
        "SELECT * FROM STREAM (other.s)",
        "SELECT * FROM IDENTIFIER('other.s')",
        "SELECT * FROM LATERAL other.s",
        "SELECT * FROM shop.t JOIN LATERAL other.s ON true",
        "SELECT * FROM shop.t, LATERAL elsewhere.a.b",
        "SELECT * FROM shop.t, LATERAL s",
        "SELECT * FROM shop.t, LATERAL other.s AS OF LATEST",
        "SUBSCRIBE (SELECT t.* FROM shop.t, LATERAL other.s)",
        "FROM shop.t |> JOIN LATERAL other.s",
        "SELECT * FROM shop.t LATERAL VIEW other.s",
        "SELECT * FROM VALUES (1), other.s TABLESAMPLE (10 ROWS)",
    ],
)
def test_tables_that_the_parser_does_not_see_are_refused_to_everybody(text: str) -> None:
    with pytest.raises(LakeholdError):
        admitted(text, "lake", lambda _: False)
