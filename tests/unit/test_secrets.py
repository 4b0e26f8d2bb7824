"""Values of secrets stay in the environment: no file of the lake, no answer, error or log has them."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest

import lakehold
from lakehold.errors import LakeholdError, Place

SECRET = "hunter2-0d8f"
STATEMENTS = """
CREATE CONNECTION kafka TO KAFKA (BROKER '127.0.0.1:1', SECURITY PROTOCOL 'SASL_PLAINTEXT', SASL MECHANISM 'PLAIN',
  SASL USERNAME 'reader', SASL PASSWORD SECRET 'kp');
CREATE CONNECTION registry TO SCHEMA REGISTRY (URL 'http://127.0.0.1:1/apis', USERNAME 'reader', PASSWORD SECRET 'kp');
CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT 1, USER 'reader', PASSWORD SECRET 'kp', DATABASE 'shop');
CREATE CONNECTION connect TO CONNECT (URL 'http://127.0.0.1:1');
SHOW CREATE CONNECTION kafka;
SHOW CREATE CONNECTION registry;
SHOW CREATE CONNECTION pg;
CREATE SOURCE topics FROM KAFKA CONNECTION kafka (TOPICS ('a')) FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry;
CREATE TABLE s.topics FROM SOURCE topics (TOPIC 'a') ENVELOPE UPSERT;
CREATE SOURCE captured FROM POSTGRES CONNECTION pg VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka FORMAT JSON;
CREATE TABLE s.captured FROM SOURCE captured (TABLE 'public.t') ENVELOPE DEBEZIUM;
EXPLAIN CREATE TABLE s.captured FROM SOURCE captured (TABLE 'public.t') ENVELOPE DEBEZIUM;
"""


def _texts(warehouse: Path) -> str:
    """Return all that the files of the lake say: those that compress are decoded."""
    found = []
    for path in sorted(path for path in warehouse.rglob("*") if path.is_file()):
        match path.suffix:
            case ".parquet":
                found.append(str(pq.read_table(path).to_pylist()))
            case ".avro":
                reader = fastavro.reader(io.BytesIO(path.read_bytes()))
                found.append(str([*reader]))
            case _:
                found.append(path.read_bytes().decode("latin-1"))
    return "\n".join(found)


def test_no_secret_is_stored_shown_or_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_KP", SECRET)
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    with lakehold.connect(str(tmp_path / "lake"), upstream_timeout_ms=1_000) as lake:
        for statement in STATEMENTS.split(";\n"):
            try:
                shown.append(repr(lake.sql(statement)) if statement.strip() else "")
            except LakeholdError as error:
                shown.append(repr(error) + str(error))
        with pytest.raises(LakeholdError) as ingested:
            lake.ingest("topics")
        shown.append(repr(ingested.value) + str(ingested.value))
    kept = _texts(tmp_path / "lake")
    assert "SASL PASSWORD SECRET 'kp'" in kept
    assert "does not answer" in shown[-1], "errors of connections are among what was shown"
    assert SECRET not in kept
    assert SECRET not in "\n".join(shown)
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CREATE TABLE a.b OPTIONS ('password' = 'geheim')", "CREATE TABLE a.b OPTIONS ('password' = ********)"),
        (
            "ALTER x (\"s3.secret-access-key\"='geheim', 'a' 'b')",
            "ALTER x (\"s3.secret-access-key\"=********, 'a' 'b')",
        ),
        ("OPTIONS (user = a, password = geheim)", "OPTIONS (user = a, password = ******)"),
        ("SET spark.x.password=geheim", "SET spark.x.password=******"),
        ("SET `spark.x.secret.key` = ge, heim; SELECT 1", "SET `spark.x.secret.key` = ********; SELECT 1"),
        ("OPTIONS (password = SECRET 'NAME')", "OPTIONS (password = SECRET 'NAME')"),
        ("(BROKER = -- it's\n 'b', PASSWORD = 'geheim')", "(BROKER = -- it's"),
        ("(BROKER = /* it's */ 'b', SASL PASSWORD = 'geheim')", "(BROKER = /* it's */ 'b', SASL PASSWORD = ********)"),
        ("(PASSWORD = r'ge heim', SSL KEY PASSWORD = 'x')", "(PASSWORD = **********, SSL KEY PASSWORD = ***)"),
        ("SELECT 1 FROM a JOIN b ON (a.token = b.token)", "SELECT 1 FROM a JOIN b ON (a.token = b.token)"),
        (
            "SELECT 'password', 'a' FROM a JOIN b ON a.token = b.token",
            "SELECT 'password', 'a' FROM a JOIN b ON a.token = b.token",
        ),
    ],
)
def test_an_error_shows_no_value_of_a_secret_option_however_it_is_written(text: str, shown: str) -> None:
    assert Place(text, 0, 1).excerpt().splitlines()[0] == shown
    assert "geheim" not in Place(text, text.rindex(text[-1]), len(text)).excerpt()
