"""The status page in a browser: it loads nothing else, nothing overlaps, and each mark is at the position of its time."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from lakehold.overview import Overview, render
from tests import overviews
from tests.browser.conftest import Show

READING = (Path(__file__).parent / "reading.js").read_text()

LAKES = {
    "everything": overviews.everything(),
    "one table": overviews.overview(overviews.table()),
    "200 tables": overviews.many(),
    "none": Overview("file:///data/lake", overviews.NOW_MS, (), ()),
}


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")


def read(page: Page, call: str) -> list[str]:
    """Return the faults that a function of `reading.js` finds."""
    found: list[str] = page.evaluate(f"(() => {{ {READING}; return {call}; }})()")
    return found


@pytest.mark.parametrize("lake", LAKES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_complete_and_legible_at_any_width_in_any_color_scheme(
    show: Show, lake: str, width: int, scheme: str
) -> None:
    shown = show(render(LAKES[lake]), width, scheme)
    for _ in range(2):
        assert read(shown.page, "overlapping()") == []
        assert read(shown.page, "overflowing()") == []
        assert read(shown.page, "faint()") == []
        unfold(shown.page)
    assert shown.messages == []
    assert [url for url in shown.requested if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in shown.requested if url.startswith("file:")]) == 1


def test_the_checks_of_legibility_find_faults(show: Show) -> None:
    page = show(
        "<style>body { background: #fff; margin: 0 } p { margin: 0; position: absolute }</style>"
        "<p style='color: #bbb; top: 10px'>faint</p><p style='top: 15px'>over</p><p style='top: 90px; left: 99vw'>wide</p>"
    ).page
    assert read(page, "overlapping()") == ["faint / over"]
    assert read(page, "overflowing()") == ["wide"]
    assert read(page, "faint()") == ["faint"]


def test_every_picture_and_every_mark_has_a_text(show: Show) -> None:
    page = show(render(LAKES["everything"])).page
    unfold(page)
    for spoken in (
        "hold audit: 5 h behind, over its MAX LAG 3 h",
        "hold report: 2 h behind, MAX LAG 3 h",
        "subscription order_changes: running, 40 s behind, MAX LAG 3 h",
        "subscription rates: lapsed, 5 h behind, MAX LAG 3 h",
        "check on report: failed, 11 of 12 met, 59 min ago",
    ):
        assert page.get_by_role("img", name=spoken, exact=True).count() == 1, spoken
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0
    marks = page.locator("li svg[role=img] > :is(rect, svg):not(.grid, .now)")
    assert marks.count() > 100
    assert marks.filter(has_not=page.locator("title")).count() == 0


def test_marks_are_at_the_positions_of_their_times(show: Show) -> None:
    page = show(render(overviews.overview(overviews.HELD))).page

    def box(selector: str) -> tuple[float, float]:
        found = page.locator(selector).first.bounding_box()
        assert found is not None
        return found["x"], found["x"] + found["width"]

    first_tick, _ = box(".track.snapshots .tick")
    since, upper = box(".track.readable .bar")
    assert first_tick == pytest.approx(since, abs=1)
    assert overviews.HELD.since_ms is not None
    per_hour = (upper - since) * overviews.HOUR_MS / (overviews.UPPER_MS - overviews.HELD.since_ms)

    report, audit = page.locator(".track.hold").nth(0), page.locator(".track.hold").nth(1)
    diamond = report.locator("svg.hold path").bounding_box()
    assert diamond is not None
    assert diamond["x"] + diamond["width"] / 2 == pytest.approx(upper - 2 * per_hour, abs=2)
    allowed, kept = (audit.locator(name).bounding_box() for name in (".allowed", ".bar"))
    assert allowed is not None
    assert kept is not None
    assert kept["x"] == pytest.approx(allowed["x"] - 2 * per_hour, abs=2)


def test_tables_are_unfolded_by_keyboard(show: Show) -> None:
    page = show(render(LAKES["200 tables"])).page
    folded = page.locator("details.table.fine").first
    assert folded.get_attribute("open") is None
    folded.locator("summary").focus()
    page.keyboard.press("Enter")
    assert folded.get_attribute("open") is not None
    assert folded.get_by_text("snapshots", exact=True).is_visible()


def test_problems_are_visible_without_scrolling(show: Show) -> None:
    page = show(render(LAKES["200 tables"])).page
    box = page.locator(".problem.wrong strong").first.bounding_box()
    assert box is not None
    assert box["y"] < 500
