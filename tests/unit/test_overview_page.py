"""The page of a lake: problems come first, with a remedy, and the page is one file that loads nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from lakehold.overview import Action, Overview, render
from lakehold.overview.facts import TableFacts
from lakehold.overview.table_problems import Level, problems_of, urgent_first
from tests import overviews
from tests.overviews import HOUR_MS, NOW_MS, follower, hold, table


class Reading(HTMLParser):
    """A parsed page: its texts, its links, and its elements by name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        text = " ".join(data.split())
        if text and tag != "style":
            self.texts.append(text)
            if tag == "a":
                self.links.setdefault(text, str(attributes["href"]))

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def problem_texts(facts: TableFacts) -> list[tuple[Level, str]]:
    return [(problem.level, problem.text) for problem in problems_of(facts)]


def test_a_name_that_would_mislead_a_reader_is_shown_with_codes() -> None:
    page = render(overviews.overview(table("shop.\u202esredro<b>\x1b")))
    assert "\u202e" not in page
    assert "shop.\\u202esredro<b>\\u001b" in Reading(page).text


def test_problems_that_need_a_person_come_first() -> None:
    names = [facts.name for facts, _ in urgent_first(overviews.everything())]
    assert names[:3] == ["shop.payments", "shop.orders", "finance.rates"]
    assert names[3:] == sorted(names[3:])
    levels = [problems[0].level if problems else Level.FINE for _, problems in urgent_first(overviews.many())]
    assert levels == sorted(levels)


def test_each_kind_of_problem_is_described() -> None:
    assert problem_texts(overviews.STOPPED) == [
        (Level.WRONG, 'stopped: column "amount" of "shop.payments" changed from decimal(10, 2) to string')
    ]
    assert problem_texts(overviews.HELD) == [
        (Level.WRONG, 'check failed: 1 of 12 expectations not met at the time of hold "report"'),
        (Level.LOOK, 'client "pricing" is 2 h behind'),
        (Level.LOOK, 'hold "audit" is 5 h behind, MAX LAG is 3 h'),
        (Level.LOOK, "3 messages in error"),
    ]
    assert problem_texts(overviews.FOREIGN) == [(Level.WRONG, 'subscription "rates" has fallen behind what is kept')]
    moved = replace(table(), holds=(hold("late", behind_ms=3 * HOUR_MS, forced_ms=NOW_MS - 9 * HOUR_MS),))
    assert problem_texts(moved) == [(Level.LOOK, 'hold "late" was moved by its MAX LAG of 3 h')]
    unfilled = (
        "columns c, d are null in rows from before, which may have a value upstream: a DEFAULT, or one from under an "
    )
    assert problem_texts(replace(table(), unfilled=("c", "d"))) == [(Level.LOOK, f"{unfilled}earlier name")]
    for quiet in (overviews.NEW, overviews.CATCHING_UP, overviews.BUSY, overviews.LONG):
        assert problem_texts(quiet) == []


def test_a_failed_check_of_the_table_itself_names_no_hold() -> None:
    facts = replace(table(), checks=(replace(overviews.check(success=False), hold=None),))
    assert problem_texts(facts) == [(Level.WRONG, "check failed: 1 of 12 expectations not met")]


def test_a_subscription_that_starts_over_by_itself_is_only_a_warning() -> None:
    lapsed = follower("s", behind_ms=5 * HOUR_MS, state="lapsed", held_ms=3 * HOUR_MS, starts_over=True)
    (problem,) = problems_of(replace(table(), followers=(lapsed,)))
    assert (problem.level, problem.action, problem.target) == (Level.LOOK, Action.PUBLISH, "s")


def test_a_problem_comes_with_a_remedy() -> None:
    page = Reading(render(overviews.overview(overviews.STOPPED)))
    assert "Undo the change upstream, or drop the table and create it again. lakehold ingest shop" in page.text


def test_a_table_that_catches_up_shows_its_progress() -> None:
    text = Reading(render(overviews.overview(overviews.CATCHING_UP, table()))).text
    assert "catching-up 1,200,000 behind" in text
    assert "400,000 of 1,600,000 records read since it began to catch up, 1,200,000 are left." in text
    assert text.count("began to catch up") == 1


@pytest.mark.parametrize(
    ("lake", "sentence"),
    [
        (overviews.everything(), "3 tables need a person; worth a look: 2 sources"),
        (
            overviews.overview(table(), replace(table("shop.b"), open_errors=1)),
            "Nothing is broken; worth a look: 1 table",
        ),
        (overviews.overview(table(), interrupted_ms=NOW_MS), "Nothing is broken; worth a look: 1 source"),
        (overviews.overview(table(), overviews.NEW), "2 tables, all in order"),
        (Overview("s3://bucket/lake", NOW_MS, (), ()), "No tables yet."),
    ],
)
def test_the_first_sentence_describes_the_state_of_the_lake(lake: Overview, sentence: str) -> None:
    assert sentence in Reading(render(lake)).text


def test_the_summary_counts_each_thing_once() -> None:
    both = hold("both", behind_ms=5 * HOUR_MS)
    lake = overviews.overview(
        replace(table("shop.a"), holds=(both,), open_errors=1_000),
        replace(table("shop.b"), holds=(both,), open_errors=4),
    )
    text = Reading(render(lake)).text
    assert "tables stopped 0 of 2" in text
    assert "holds over MAX LAG 1 of 1" in text
    assert "messages in error 1,004" in text


def test_a_row_has_the_facts_of_its_table() -> None:
    text = Reading(render(overviews.overview(table()))).text
    facts = "state live source shop rows 1,204,331 since 2026-11-22 04:00:00 upper 2026-11-22 09:59:56 4 s ago errors 0"
    assert facts in text
    assert "36, the newest of 2026-11-22 09:50:00" in text


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = render(overviews.everything())
    tags = Reading(page).tags
    assert {tag for tag, _ in tags} & {"script", "img", "iframe", "object", "embed", "audio", "video"} == set()
    loaded = [attributes.get("href") for tag, attributes in tags if tag == "link"]
    assert loaded == ["data:,"]
    assert not re.search(r"url\(|@import|\bon[a-z]+=", page)


def test_names_cannot_break_out_of_the_page() -> None:
    name = "shop.<script>alert('1')</script>"
    wild = replace(table(name), holds=(hold('"><img src=x>', behind_ms=1),), source="<b>")
    tags = {tag for tag, _ in Reading(render(overviews.overview(wild))).tags}
    assert tags & {"script", "img", "b"} == set()
    assert name in Reading(render(overviews.overview(wild))).text


def test_a_file_links_to_the_pages_of_checks_and_names_commands() -> None:
    page = Reading(render(overviews.overview(overviews.HELD)))
    assert page.links == {"page": "file:///lake/_checks/shop.orders/1.html"}
    assert "lakehold check shop.orders" in page.text
    unsafe = replace(overviews.check(), page="javascript:alert(1)")
    assert Reading(render(overviews.overview(replace(table(), checks=(unsafe,))))).links == {}


def test_the_program_that_shows_the_page_provides_its_links() -> None:
    def links(action: Action, target: str) -> str | None:
        return None if action is Action.CHECK_PAGE else f"/dags/{action.value}?of={target}"

    page = Reading(render(overviews.overview(overviews.HELD, overviews.STOPPED), links))
    assert page.links == {
        "ingest shop": "/dags/ingest?of=shop",
        "check shop.orders": "/dags/check?of=shop.orders",
        "maintain shop.orders": "/dags/maintain?of=shop.orders",
        "check": "/dags/check?of=shop.payments",
        "maintain": "/dags/maintain?of=shop.payments",
        "publish order_changes": "/dags/publish?of=order_changes",
    }
    assert "lakehold check" not in page.text


def test_only_problems_that_need_a_person_are_unfolded_in_a_large_lake() -> None:
    def unfolded(lake: Overview) -> int:
        return sum(tag == "details" and "open" in attributes for tag, attributes in Reading(render(lake)).tags)

    assert unfolded(overviews.many()) == 2
    assert unfolded(overviews.overview(table())) == 1
    assert unfolded(overviews.overview(*(replace(overviews.STOPPED, name=f"shop.t{n}") for n in range(50)))) == 8


def test_two_hundred_tables_with_a_day_of_snapshots_each_stay_a_small_page() -> None:
    busy = (replace(overviews.BUSY, name=f"shop.t{n}") for n in range(200))
    assert len(render(overviews.overview(*busy))) < 5_000_000
