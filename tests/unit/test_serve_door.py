"""The door of `lakehold serve`: who may come in, and to which addresses it opens."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from lakehold.errors import SettingsError, StatementError
from lakehold.serve.admission import Kind, admitted
from lakehold.serve.serving import Door, served
from lakehold.serve.tokens import Access, Tokens, read_tokens

LONG = "0123456789abcdef"


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"", "no token"),
        (b"# none\n\n", "no token"),
        (b"short bi\n", "Line 1 is not a token"),
        (f"{LONG} bi ops\n".encode(), "Line 1 is not a token"),
        (f"{LONG} bi tables=shop\n".encode(), 'Line 1: "shop" is neither namespace.table nor namespace.*'),
        (f"{LONG} tables=shop.*,\n".encode(), '"" is neither'),
        (f"{LONG} tables=shop.* bi\n".encode(), "Line 1 is not a token"),
        (f"{LONG} tables=\n".encode(), "Line 1 is not a token"),
        (b"\xff\n", "Byte 0"),
        (None, "No such file"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_says_why(tmp_path: Path, content: bytes | None, detail: str) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match="tokens") as raised:
        read_tokens(path)
    assert (raised.value.code, detail in raised.value.detail) == ("serve-tokens", True)


def test_a_token_has_its_role_and_without_tokens_all_have_one(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{LONG} bi\n{LONG[::-1]}\n")
    tokens = read_tokens(tmp_path / "tokens")
    assert (tokens.access_of(LONG).role, tokens.access_of(LONG[::-1])) == ("bi", Access())
    for wrong in ("", LONG[:-1], f"{LONG}g", "ü"):
        with pytest.raises(LookupError):
            tokens.access_of(wrong)
    assert LONG not in repr(tokens)
    assert Tokens(default=Access("ops")).access_of("anything").role == "ops"


@pytest.mark.parametrize(
    ("door", "missing"),
    [
        (Door(host="0.0.0.0"), "--certificate and --key and --tokens"),
        (Door(host="::"), "--certificate and --key and --tokens"),
        (Door(host="lake.example", tokens=Path("tokens")), "--certificate and --key"),
        (Door(host="10.0.0.1", certificate=Path("crt"), key=Path("key")), "--tokens"),
    ],
)
def test_other_machines_need_tls_and_tokens(door: Door, missing: str) -> None:
    with pytest.raises(SettingsError) as raised, served(Mock(), door):
        pass
    assert (raised.value.code, f"Missing: {missing}." in raised.value.detail) == ("serve-exposed", True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_machine_needs_neither(host: str) -> None:
    assert Door(host=host).is_on_loopback


def test_a_statement_is_admitted_by_what_it_is_not_by_how_it_is_written() -> None:
    def kind(text: str) -> Kind:
        return admitted(text, "lake", lambda name: name == "other").kind

    assert kind("/* SELECT */ subscribe a.b; -- DROP TABLE a.b") is Kind.SUBSCRIPTION
    assert kind("(SELECT 1) UNION ALL VALUES (2)") is Kind.QUERY
    assert kind("FROM a.b SELECT a AS using, 'reflect(1)' JOIN a.c USING (id)") is Kind.QUERY
    assert kind("SELECT * FROM lake.a.b JOIN a.b.snapshots JOIN CHANGES(a.b AS OF 1) c") is Kind.QUERY
    assert kind("EXPLAIN FORMATTED SELECT * FROM CHANGES(a.b AS OF 1)") is Kind.QUERY
    assert (
        kind("SUBSCRIBE (SELECT sum(id) OVER (ORDER BY `a b`) AS n FROM a.b) ENVELOPE UPSERT (KEY (id))")
        is Kind.SUBSCRIPTION
    )
    assert kind("WITH x(a, `b`) AS (VALUES (1, lake.system.bucket(4, 2))) SELECT * FROM x AS y (c, d)") is Kind.QUERY
    assert kind("show holds") is Kind.ANSWER
    assert kind("DROP HOLD week") is Kind.HOLD_CHANGE
    assert kind("DESCRIBE EXTENDED lake.a.other") is kind("SHOW TABLES IN a LIKE 'other'") is Kind.QUERY
    for text in (
        "SHOW SYSTEM FUNCTIONS",
        "SHOW TBLPROPERTIES shop.visits ('format-version')",
        "SHOW PARTITIONS shop.visits PARTITION (session = 1)",
        "DESCRIBE shop.visits PARTITION (day = 1)",
        "DESCRIBE shop.visits session",
        "DESC EXTENDED shop.visits `system`",
        "DESCRIBE TABLE shop.other",
        "DESCRIBE QUERY SELECT session, count(*) AS other FROM shop.visits AS system GROUP BY session",
        "DESCRIBE (SELECT session.id FROM shop.visits AS session)",
        "DESC WITH other AS (SELECT 1 AS a) SELECT other.a FROM other",
    ):
        assert kind(text) is Kind.QUERY
    for text in (
        "DESCRIBE EXTENDED other.a.b",
        "DESC `other`.a",
        "DESCRIBE SELECT * FROM OTHER.a.b",
        "DESCRIBE QUERY (SELECT * FROM a.b JOIN other.a.b)",
        "DESCRIBE QUERY TABLE other.a.b",
        "DESCRIBE TABLE other.a.b",
        "DESCRIBE TABLE a.b UNION SELECT * FROM other.a.b",
        "DESCRIBE TABLE a.b UNION SELECT reflect('java.lang.System', 'exit', 1)",
        "DESCRIBE QUERY SELECT schema_of_avro('\"int\"', map('avroSchemaUrl', '/etc/passwd'))",
        "DESC DATABASE other",
        "DESCRIBE NAMESPACE EXTENDED `other`",
        "DESCRIBE FUNCTION other.a.f",
        "SHOW TABLES IN other.a",
        "SHOW TABLES IN spark_catalog.default",
        "SHOW SCHEMAS IN /* */ other",
        "SHOW TBLPROPERTIES other.a.b",
        "SHOW CREATE TABLE other.a.b",
        "SHOW COLUMNS IN b IN other.a",
        "SHOW VIEWS IN global_temp",
        "SELECT * FROM other.a.b",
        "SELECT 1 WHERE EXISTS (SELECT * FROM `OTHER`.a.b)",
        "WITH x AS (SELECT * FROM spark_catalog.a.b) SELECT * FROM x",
        "SELECT a FROM a.b WHERE `Reflect` /* */ ('java.lang.System', 'exit', 1)",
        "SELECT r'\\', IDENTIFIER('a.b')",
        "SELECT 1 AS a -- \\\n/*\n, reflect('java.lang.System', 'getenv', 'HOME') AS b -- */\nFROM a.b",
        "WITH x AS (SELECT 1 AS a) -- \\\nSELECT * FROM x -- \\\n/*\nDELETE FROM a.b -- */\nWHERE true",
        "SUBSCRIBE (SELECT /*+ a */ /*+ b('*/ 1 AS z -- ') */ reflect('a', 'b') AS y\nFROM a.b)",
        "SELECT from_avro(a, '\"int\"', map('avroSchemaUrl', '/etc/passwd')) FROM a.b",
        "SELECT schema_of_avro('\"int\"', map('avroSchemaUrl', '/etc/passwd'))",
        "SUBSCRIBE (SELECT schema_of_xml(a, map('rowValidationXSDPath', '/etc/passwd')) AS x FROM a.b)",
        "SELECT * FROM python_worker_logs()",
        "SELECT function_of_a_later_spark('/etc/passwd') FROM a.b",
        "SELECT `reflect`(a, b) FROM a.b",
        "SELECT builtin.reflect('java.lang.System', 'exit', 1)",
        "SELECT other.a.abs(1)",
        "SUBSCRIBE a.b WITHIN TIMESTAMP ORDER BY unknown(1)",
        "SELECT * FROM a.b AS OF LATEST UNION SELECT from_xml(a, 'b INT', map('rowValidationXSDPath', '/etc/passwd'))",
    ):
        with pytest.raises(StatementError):
            kind(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM b.c t (a, d)",
        "SELECT a FROM b.c AS t (a)",
        "SELECT a FROM (SELECT 1) t (a)",
        "SELECT a FROM (SELECT 1) (a)",
        "WITH x (a) AS (SELECT 1), `y` (`b`) AS (SELECT 2) SELECT a FROM x",
        "SELECT sum(a) FROM b.c LATERAL VIEW explode(d) e AS f",
        "SELECT count(DISTINCT a), max(b) FILTER (WHERE a > 1) FROM b.c GROUP BY ROLLUP (a)",
    ],
)
def test_names_of_columns_after_an_alias_are_no_call(text: str) -> None:
    assert admitted(text, "lake", lambda _: False).kind is Kind.QUERY


@pytest.mark.parametrize(
    "text",
    [
        "SELECT registered(a) FROM b.c",
        "SELECT 1, registered(a, b) FROM b.c",
        "SELECT a FROM b.c WHERE registered(a)",
        "SELECT DISTINCT registered(a) FROM b.c",
        "SELECT 1 + registered(a) FROM b.c ORDER BY a",
        "SELECT a FROM b.c ORDER BY registered(a)",
    ],
)
def test_a_function_that_somebody_registered_is_no_alias(text: str) -> None:
    with pytest.raises(StatementError, match="a client may not call registered"):
        admitted(text, "lake", lambda _: False)
