"""Groups of sources that are ingested together, whatever their connections are called."""

from __future__ import annotations

import pytest

from lakehold.definitions import Connection, ConnectionType, Envelope, Format, FormatType, Source, Table
from lakehold.model.lake_definitions import Definitions, Entry
from lakehold.model.shared_sources import sharing, together

JSON, AVRO = Format(FormatType.JSON), Format(FormatType.AVRO, "registry")


def defined(**topics: tuple[str, Format, str]) -> Definitions:
    """Define sources by name: their connection, format, and the topics of their tables in one word."""
    connections = {
        name: Connection(name, ConnectionType.KAFKA, {"broker": broker})
        for name, broker in {"kafka": "k:1", "same": "k:1", "other": "k:2"}.items()
    }
    connections["registry"] = Connection("registry", ConnectionType.SCHEMA_REGISTRY, {"url": "http://r"})
    sources = {name: Source(name, format_, connection) for name, (connection, format_, _) in topics.items()}
    tables = [
        Table(name, f"t{topic}", name, topic, Envelope.UPSERT)
        for name, (_, _, word) in topics.items()
        for topic in word
    ]
    return Definitions(
        {name: Entry(name, connection, "", 0) for name, connection in connections.items()},
        {name: Entry(name, source, "", 0) for name, source in sources.items()},
        {table.full_name: Entry(table.full_name, table, "", 0) for table in tables},
    )


@pytest.mark.parametrize(
    ("sources", "groups"),
    [
        ({"x": ("kafka", JSON, "a"), "y": ("kafka", JSON, "a")}, [["x", "y"]]),
        ({"x": ("kafka", JSON, "ab"), "y": ("same", JSON, "bc")}, [["x", "y"]]),
        ({"x": ("kafka", JSON, "a"), "y": ("kafka", JSON, "b")}, [["x"], ["y"]]),
        ({"x": ("kafka", JSON, "a"), "y": ("other", JSON, "a")}, [["x"], ["y"]]),
        ({"x": ("kafka", JSON, "a"), "y": ("kafka", AVRO, "a")}, [["x"], ["y"]]),
        ({"x": ("kafka", AVRO, "a"), "y": ("kafka", AVRO, "a"), "z": ("kafka", AVRO, "")}, [["x", "y"], ["z"]]),
        ({"x": ("kafka", JSON, "a"), "y": ("kafka", JSON, "b"), "z": ("kafka", JSON, "ab")}, [["x", "y", "z"]]),
    ],
)
def test_sources_over_the_same_topics_are_together(
    sources: dict[str, tuple[str, Format, str]], groups: list[list[str]]
) -> None:
    assert together(sorted(sources), defined(**sources)) == groups


def test_the_declared_topics_of_a_source_count_before_it_has_tables() -> None:
    definitions = defined(x=("kafka", JSON, "ab"), y=("other", JSON, "b"))
    new = Source("new", JSON, "same", topics=("b", "c"))
    assert sharing(new, new.topics, definitions) == ("x",)
