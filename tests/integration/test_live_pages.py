"""Every block of the documentation that needs PostgreSQL and Kafka Connect runs on them, and prints what the page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from lakehold.stack import StackAddresses, StackPorts
from tests.page_terminal import EXAMPLES, Terminal, read
from tests.page_terminal import terminal as terminal  # noqa: PLC0414 - pytest finds fixtures by name
from tests.runnable_pages import PAGES, parts
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LIVE = [page for page in PAGES if any(part.runs and part.is_live for part in parts(page.read_text()))]
SHOWN = StackAddresses.of(StackPorts())
"""The addresses that pages name."""

TABLES = """
CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL);
CREATE TABLE carts (id bigint PRIMARY KEY, user_id bigint NOT NULL);
ALTER TABLE users REPLICA IDENTITY FULL;
ALTER TABLE carts REPLICA IDENTITY FULL;
INSERT INTO users VALUES (1, 'Ada'), (2, 'Grace');
INSERT INTO carts VALUES (1, 1), (2, 1), (3, 2)
"""
KAFKA = f"CREATE CONNECTION kafka TO KAFKA (BROKER '{SHOWN.kafka}')"
SOURCE = f"""
CREATE CONNECTION pg TO POSTGRES
  (HOST '127.0.0.1', PORT {SHOWN.postgres_port}, USER 'lakehold', PASSWORD SECRET 'pg_password', DATABASE 'app');
CREATE CONNECTION connect TO CONNECT (URL '{SHOWN.connect}');
CREATE SOURCE app FROM POSTGRES CONNECTION pg VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka FORMAT JSON
"""
USERS = "CREATE TABLE app.users FROM SOURCE app (TABLE 'public.users') ENVELOPE DEBEZIUM"


class LiveApp:
    """The database `app` of a page, and the source `app` over it."""

    def __init__(self, terminal: Terminal, stack: StackAddresses) -> None:
        self._terminal = terminal
        self._stack = stack
        terminal.stack = stack
        terminal.standins.of |= {
            SHOWN.kafka: stack.kafka,
            SHOWN.connect: stack.connect,
            f"PORT {SHOWN.postgres_port}": f"PORT {stack.postgres_port}",
            "http://connect.example:8083": stack.connect,
            "HOST 'db.example'": f"HOST '{stack.postgres_host}', PORT {stack.postgres_port}",
            "broker.example:9092": stack.kafka,
            "DATABASE 'shop'": "DATABASE 'app'",
        }
        self.steps: dict[str, Callable[[], None]] = {
            "the examples are copied, and PostgreSQL has users and carts": self._examples,
            "PostgreSQL's configuration has the limit": self._has_limit,
            "PostgreSQL, Kafka and Kafka Connect run": lambda: terminal.set_variable("COLUMNS", "170"),
            "a database with users and carts": self._database,
            "a database with users and carts, and a connection to Kafka": lambda: self._database(KAFKA),
            "a source over a database with users and carts": lambda: self._database(KAFKA, SOURCE),
            "users are captured": lambda: self._database(KAFKA, SOURCE, USERS),
            "somebody changes rows of the lake": self._change_lake,
            "the ingest that follows takes the changes": self._follow,
            "the lake has the users": self._wait_until_equal,
        }

    def drop(self) -> None:
        """Remove what the page has left upstream."""
        for warehouse in ("lake", "app-lake"):
            self._run("sh", f'lakehold sql --warehouse {warehouse} "DROP SOURCE IF EXISTS app CASCADE"')
        self._terminal.database = "postgres"
        self._run("postgresql", "DROP DATABASE IF EXISTS app WITH (FORCE)")
        self._run("postgresql", "ALTER SYSTEM RESET max_slot_wal_keep_size")

    def _database(self, *statements: str) -> None:
        for program in ("CREATE DATABASE app", TABLES):
            self._run("postgresql", program)
        for program in statements:
            self._run("sql", program)

    def _examples(self) -> None:
        self._database()
        self._terminal.copy(EXAMPLES)

    def _has_limit(self) -> None:
        # Not what SHOW says: the stack limits its log on the command line, which prevails.
        found = "SELECT setting, error FROM pg_file_settings WHERE name = 'max_slot_wal_keep_size'"
        with psycopg.connect(self._stack.postgres()) as connection:
            assert connection.execute(found).fetchall() == [("50GB", None)]

    def _follow(self) -> None:
        self._run("sh", "lakehold ingest app --follow --warehouse app-lake", shows=True)

    def _change_lake(self) -> None:
        with self._terminal.connect("lake") as lake:
            users = f"{lake.settings.catalog_name}.app.users"
            lake.spark.sql(f"UPDATE {users} SET name = 'Ida' WHERE id = 1")
            lake.spark.sql(f"DELETE FROM {users} WHERE id = 2")

    def _wait_until_equal(self) -> None:
        query = "SELECT id, name FROM {}.users ORDER BY id"
        with psycopg.connect(self._stack.postgres("app")) as connection:
            rows = connection.execute(query.format("public").encode()).fetchall()

        def is_equal() -> bool:
            with self._terminal.connect("lake") as lake:
                lake.ingest("app")
                return lake.catalog.table_exists("app.users") and lake.sql(query.format("app")).rows == rows

        wait_for(is_equal, "the lake has the users")

    def _run(self, kind: str, program: str, *, shows: bool = False) -> None:
        printed, went_well = self._terminal.run(kind, self._terminal.standins.applied(program), shows=shows)
        assert went_well, printed


@pytest.fixture
def app(
    terminal: Terminal, stack: StackAddresses, stack_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveApp]:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG_PASSWORD", stack.postgres_password)
    monkeypatch.setenv("LAKEHOLD_STACK_DIR", str(stack_directory))
    made = LiveApp(terminal, stack)
    yield made
    made.drop()


@pytest.mark.parametrize("page", LIVE, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, terminal: Terminal, app: LiveApp) -> None:
    read(page, terminal, lambda name: app.steps[name](), live=True)


def test_every_step_is_on_a_page(app: LiveApp) -> None:
    steps = [part for page in PAGES for part in parts(page.read_text()) if part.kind == "step"]
    assert {step.text for step in steps if step.is_live} == set(app.steps)
