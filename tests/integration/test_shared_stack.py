"""Demos that run at once share one stack: the last of them stops it, and each says so if it ends meanwhile."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from lakehold import stack
from lakehold.demo.live import running_stack
from lakehold.demo.screen import Screen
from lakehold.stack import StackError
from lakehold.stack.composition import StackPlan
from tests.stack_fixtures import free_ports, open_directory

pytestmark = pytest.mark.stack


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory of a stack that never ran, which demos use."""
    with open_directory() as name:
        monkeypatch.setenv("LAKEHOLD_STACK_DIR", name)
        StackPlan(Path(name), free_ports()).record()
        yield Path(name)
        stack.down(Path(name), delete_data=True)


def states(directory: Path) -> set[str]:
    return {part.state for part in stack.status(directory)}


def connect_after_down(screen: Screen, directory: Path) -> None:
    with running_stack(screen) as addresses:
        stack.down(directory)
        psycopg.connect(addresses.postgres())


def test_the_last_demo_stops_the_stack_and_only_if_a_demo_started_it(directory: Path) -> None:
    screen = Screen(io.StringIO())
    with ExitStack() as second:
        with running_stack(screen):
            second.enter_context(running_stack(screen))
        assert states(directory) == {"running"}, "the second demo still uses it"
    assert states(directory) == {"stopped"}

    with running_stack(screen):
        stack.up(directory)
    assert states(directory) == {"running"}, "somebody has started it for longer than a demo"

    with pytest.raises(StackError, match="the stack ended") as raised:
        connect_after_down(screen, directory)
    assert raised.value.code == "stack-ended"
    assert "postgres" in str(raised.value)
    with pytest.raises(ZeroDivisionError), running_stack(screen):
        raise ZeroDivisionError
    assert states(directory) == {"stopped"}
