"""A random run: commands that are drawn by a seed, so that the run can be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from lakehold.lake import Lake
from tests.whole.checks import check
from tests.whole.commands import COMMANDS
from tests.whole.world import World


def run(open_lake: Callable[[], Lake], directory: Path, seed: int, commands: int) -> Counter[str]:
    """Do random commands, and compare the lake with its model in between and at the end.

    Args:
        open_lake: Opens one and the same new lake each time, with `SETTINGS`.
        directory: A folder that does not exist yet.
        seed: The same seed draws the same commands.
        commands: How many.

    Returns:
        What happened how often.

    Raises:
        AssertionError: The lake shows something else than the model; the notes tell seed and commands.
    """
    random = Random(seed)
    done: list[str] = []
    try:
        world = World(open_lake, directory, random)
        for _ in range(commands):
            (command,) = random.choices(list(COMMANDS), list(COMMANDS.values()))
            done.append(command.__name__)
            command(world)
        done.append("at the end")
        world.ingest()
        check(world)
    except BaseException as error:
        error.add_note(f"seed {seed}, after: {', '.join(done)}")
        raise
    return world.counts + Counter(done)
