"""A check whose page cannot be written names the setting, and a comparison keeps its result."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakehold.errors import SettingsError
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark


def test_a_page_that_cannot_be_written_fails_a_check_but_no_comparison(
    make_lake: LakeFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no directory")
    places = {f"{tmp_path}/file/pages": "Not a directory", "https://pages.example/checks": "https"}
    for place, reason in places.items():
        shop = Shop(make_lake, check_pages=place)
        shop.write((1, "a"), (2, "b"))
        with pytest.raises(SettingsError, match=r'the page of the check of "shop.t" cannot be written') as unwritten:
            shop.lake.check("shop.t")
        assert unwritten.value.code == "check-page"
        assert place in unwritten.value.detail
        assert reason in unwritten.value.detail
        assert "check_pages" in unwritten.value.hint

        shop.lake.sql("CREATE MATERIALIZED VIEW bi.t AS SELECT id FROM shop.t")
        shop.lake.publish("bi.t")
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert shop.lake.verify("bi.t").is_equal
        assert [check.html_path for check in shop.lake.checks.kept.values()] == [""]
        assert "set check_pages to a directory or URI" in caplog.text
