"""Options of connections fit their kind and each other before anything is stored; ALTER changes them, and those of sources."""

from __future__ import annotations

import pytest

from lakehold.definitions import Secret
from lakehold.errors import DefinitionError
from lakehold.sql.run.script_run import Runner
from tests.unit.test_script_notices import capturing
from tests.unit.test_sql_run import runner, with_shop

CONNECTIONS = """
CREATE CONNECTION kafka TO KAFKA (BROKER 'b:9092', SECURITY PROTOCOL 'SASL_SSL', SASL MECHANISM 'PLAIN',
  SASL JAAS CONFIG SECRET 'jaas');
CREATE CONNECTION registry TO SCHEMA REGISTRY (URL 'http://r:8081', USERNAME 'reader', PASSWORD SECRET 'r');
CREATE CONNECTION pg TO POSTGRES (HOST 'db', PORT 5433, USER SECRET 'u', PASSWORD SECRET 'p', DATABASE 'shop');
CREATE CONNECTION my TO MARIADB (HOST 'db', USER 'u', SSL MODE 'verify-ca', SSL CERTIFICATE AUTHORITY '/ca.pem');
CREATE CONNECTION connect TO CONNECT (URL 'http://c:8083');
"""


@pytest.fixture
def lake() -> Runner:
    made, _ = runner()
    made.run(CONNECTIONS)
    return made


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        ("TO KAFKA (BROKER 'b:9092', SASL USERNAME 'u')", "option-invalid", "SECURITY_PROTOCOL"),
        ("TO KAFKA (BROKER 'b:9092', SECURITY PROTOCOL 'SASL_SSL')", "option-invalid", "SASL_MECHANISM"),
        ("TO POSTGRES (HOST 'h', USER 'u', DATABASE 'd', SSL MODE 'verify-full')", "option-missing", "AUTHORITY"),
        ("TO MYSQL (HOST 'h', USER 'u', SSL CERTIFICATE AUTHORITY '/ca.pem')", "option-missing", "SSL MODE"),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused_when_they_are_written(
    lake: Runner, statement: str, code: str, words: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        lake.run(f"CREATE CONNECTION other {statement}")
    assert refused.value.code == code
    assert words in refused.value.hint
    assert "other" not in lake.store.definitions().connections


def test_options_change_while_the_rest_of_a_connection_stays(lake: Runner) -> None:
    before = lake.store.definitions().connections["pg"]
    lake.run("ALTER CONNECTION pg SET (HOST 'db2.example', PASSWORD SECRET 'p2'); ALTER CONNECTION pg RESET (PORT)")
    after = lake.store.definitions().connections["pg"]
    assert after.object_id == before.object_id
    assert after.definition.options == {
        "host": "db2.example",
        "user": Secret("u"),
        "password": Secret("p2"),
        "database": "shop",
    }
    ((_, text),) = lake.run("SHOW CREATE CONNECTION pg").rows
    assert "HOST 'db2.example'" in text
    assert "PORT" not in text
    lake.run("ALTER CONNECTION registry SET (URL 'http://a:8081,http://b:8081')")
    assert lake.store.definitions().connection("registry").options["url"] == "http://a:8081,http://b:8081"


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        ("ALTER CONNECTION pgg SET (HOST 'h')", "connection-missing", "pg"),
        ("ALTER CONNECTION pg SET (BROKER 'b:9092')", "option-unknown", "HOST"),
        ("ALTER CONNECTION pg RESET (SASL USERNAME)", "option-unknown", "HOST"),
        ("ALTER CONNECTION pg RESET (HOST)", "option-missing", "HOST"),
        ("ALTER CONNECTION connect SET (URL 'http://a:8083,http://b:8083')", "option-invalid", "one worker"),
        ("ALTER CONNECTION my RESET (SSL CERTIFICATE AUTHORITY)", "option-missing", "AUTHORITY"),
        ("ALTER CONNECTION kafka RESET (SECURITY PROTOCOL)", "option-invalid", "SECURITY_PROTOCOL"),
    ],
)
def test_a_change_that_does_not_fit_changes_nothing(lake: Runner, statement: str, code: str, words: str) -> None:
    before = lake.store.definitions()
    with pytest.raises(DefinitionError) as refused:
        lake.run(statement)
    assert refused.value.code == code
    assert words in f"{refused.value.detail} {refused.value.hint}"
    assert lake.store.definitions() == before


def test_a_change_names_the_sources_whose_connectors_it_does_not_reach_yet() -> None:
    lake = capturing()
    (notice,) = lake.run("ALTER CONNECTION pg SET (HOST 'db2.example')").notices
    assert notice == "the connector of source app has the change after its next ingest, or ALTER SOURCE app REPAIR"
    assert lake.run("ALTER CONNECTION pg SET (HOST 'db2.example')").notices == ()


def test_options_of_a_source_change_while_its_tables_stay() -> None:
    lake, tables = with_shop()
    before = lake.store.definitions().sources["shop"]
    assert lake.run("EXPLAIN ALTER SOURCE shop SET (MAX RECORDS = 500)").rows == [("change source shop",)]
    lake.run("ALTER SOURCE shop SET (MAX RECORDS = 500, MAX BYTES = 10)")
    lake.run("ALTER SOURCE shop RESET (MAX BYTES)")
    after = lake.store.definitions().sources["shop"]
    assert (after.object_id, after.definition.options) == (before.object_id, {"max_records": 500})
    assert tables.forgotten == ["shop"], "only when it was created"


def test_a_connection_that_exists_is_changed_by_alter_and_not_dropped(lake: Runner) -> None:
    with pytest.raises(DefinitionError) as refused:
        lake.run("CREATE CONNECTION pg TO POSTGRES (HOST 'db2', USER 'u', DATABASE 'shop')")
    assert refused.value.code == "connection-exists"
    assert refused.value.hint.startswith("Change its options by ALTER CONNECTION pg SET (…)")
