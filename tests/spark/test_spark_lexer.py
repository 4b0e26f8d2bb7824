"""lakehold and Spark see the same tokens: text that is a comment for one and code for the other is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.errors import StatementError
from lakehold.sql.text.dialect import tokenize

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

HIDDEN = {"WS", "SIMPLE_COMMENT", "BRACKETED_COMMENT"}
QUOTED = {"STRING_LITERAL", "DOUBLEQUOTED_STRING", "BACKQUOTED_IDENTIFIER"}

SAME = [
    "SELECT /* /* */ 'a' */ 1 -- \\ in a comment\n, 2",
    r"""SELECT r'\', 'it''s \' --', "a""b\"/*", `a``b /*`""",
    "SELECT /*+ MERGE(`a`), REPARTITION(3) */ /*+ b */* FROM a.b",
    "SELECT\u00a01,\f2\v+\u30003 -- ends here\rFROM a.b -- \\\r\nWHERE true",
    "SELECT 1r'\\', 2 --'\n",
    "SELECT 'C:\\\\' -- a path at the end of a line: C:\\\\ \nFROM a.b",
]
OTHER = [
    "SELECT 1 AS a -- \\\n/*\n, reflect('java.lang.System', 'getenv', 'HOME') AS b -- */\nFROM a.b",
    "WITH x AS (SELECT 1 AS a) -- \\\nSELECT * FROM x -- \\\n/*\nDELETE FROM a.b -- */\nWHERE true",
    "SELECT /*+ a */ /*+ b('*/ 1 AS z -- ') */ (SELECT max(v) FROM a.b) AS y\nFROM a.c",
    "SELECT /*+ b('*/ 1 AS z -- ') */ (SELECT max(v) FROM a.b) AS y\nFROM a.c",
    "SELECT /* /*+ */ 1 /* */ */ 2",
    "SELECT 1 {# , 2 #} FROM a.b",
    "SELECT a://b--c\n, 1",
    "SELECT \u0345r'\\', 2 --'\n",
    "SELECT 1\x85FROM a.b",
    "SELECT 1\u2029FROM a.b",
]
PIECES = [
    *(
        "'",
        '"',
        "`",
        "\\",
        "\n",
        "\r",
        "\\\n",
        "--",
        "/*",
        "*/",
        "/*+",
        "/",
        "*",
        "-",
        "+",
        " ",
        "\f",
        "\u00a0",
        "\x85",
    ),
    *("r", "R", "x", "N", "u&", "1", ".", "e+", "L", "0x", "://", "{#", "#}", "{{", "{%", "$$", "#", ";", "(", ")"),
    *("\u0345", "é", "²", "\u017f", "_", "''", "\\u0027", "\x00", "\ufeff", "\U0001f600", "ORDER BY", "/*+ b('*/"),
]


def spark_tokens(spark: SparkSession, text: str) -> list[tuple[int, int, str]]:
    """Return where Spark's own lexer finds tokens, and their names."""
    java: Any = spark._jvm
    parser = java.org.apache.spark.sql.catalyst.parser
    stream = parser.UpperCaseCharStream(java.org.antlr.v4.runtime.CharStreams.fromString(text))
    lexer = parser.SqlBaseLexer(stream)
    lexer.removeErrorListeners()
    names = lexer.getVocabulary()
    return [
        (token.getStartIndex(), token.getStopIndex() + 1, names.getSymbolicName(token.getType()))
        for token in lexer.getAllTokens()
    ]


def check_same(spark: SparkSession, text: str) -> None:
    tokens = tokenize(text)
    seen = {place for token in tokens for place in range(token.start, token.end + 1)}
    ends = {token.end + 1: token for token in tokens}
    within_hint = False
    for start, end, name in spark_tokens(spark, text):
        within_hint = name == "HENT_START" or (within_hint and name != "HENT_END")
        if within_hint or name == "HENT_END":
            assert not name.endswith("COMMENT"), text
            continue
        places = set(range(start, end))
        assert places.isdisjoint(seen) if name in HIDDEN else places <= seen, (text, start, end, name)
        if name in QUOTED:
            token = ends[end]
            assert (token.token_type.name == "IDENTIFIER") == (name == "BACKQUOTED_IDENTIFIER"), text
            assert (token.token_type.name == "RAW_STRING") == (text[start] in "rR"), text


@pytest.mark.parametrize("text", SAME)
def test_a_text_that_both_read_in_one_way_is_read(spark: SparkSession, text: str) -> None:
    check_same(spark, text)


@pytest.mark.parametrize("text", OTHER)
def test_a_text_that_spark_reads_in_another_way_is_refused(text: str) -> None:
    with pytest.raises(StatementError) as refused:
        tokenize(text)
    assert refused.value.message.startswith("Spark reads the text")


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_read_spark_reads_in_the_same_way(spark: SparkSession, seed: int) -> None:
    chosen = random.Random(seed)
    read = 0
    for _ in range(100):
        text = "SELECT " + "".join(chosen.choices(PIECES, k=chosen.randint(1, 9)))
        try:
            tokenize(text)
        except StatementError:
            continue
        read += 1
        check_same(spark, text)
    assert read
