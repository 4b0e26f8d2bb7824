"""Random commands on a whole lake, compared with a model; `python -m tests.whole` does the same for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LakeFactory
from tests.whole.running import run
from tests.whole.world import SETTINGS

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lake_shows_what_its_model_does(make_lake: LakeFactory, tmp_path: Path, seed: int) -> None:
    counts = run(
        lambda: make_lake(tmp_path / "lake", catalog_name=f"whole{seed}", **SETTINGS), tmp_path / "topics", seed, 25
    )
    assert counts["times of tables"] > 20
