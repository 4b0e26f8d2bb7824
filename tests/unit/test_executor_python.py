"""The Python that executors start, and errors of Spark that say that it cannot run lakehold."""

from __future__ import annotations

import sys

import pytest

from lakehold.executor_python import executor_lacks, interpreter


def test_the_interpreter_is_sparks_setting_then_the_variable_then_the_drivers_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/variable")
    assert interpreter({"spark.pyspark.python": "/opt/setting"}) == "/opt/setting"
    assert interpreter({}) == "/opt/variable"
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert interpreter({}) == sys.executable


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ModuleNotFoundError: No module named 'lakehold.verify'\n", "No module named 'lakehold.verify'."),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, "
            "PySpark cannot run with different minor versions.\nPlease check environment variables",
            "Python in worker has different version: 3.12 than that in driver: 3.11, "
            "PySpark cannot run with different minor versions.",
        ),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or directory',
            'Cannot run program "./environment/bin/python".',
        ),
        (
            "pyspark.errors.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 15.0.0 must be installed; "
            "however, it was not found.\n",
            "PyArrow >= 15.0.0 must be installed; however, it was not found.",
        ),
    ],
    ids=["no lakehold", "another Python", "no Python", "no package"],
)
def test_an_executor_that_lacks_something_is_named_with_it(text: str, cause: str) -> None:
    found = executor_lacks(text)
    assert found is not None
    assert (found.code, found.detail) == ("executor-python", cause)


def test_other_errors_are_not_taken_for_it() -> None:
    assert executor_lacks("ModuleNotFoundError: No module named 'lakeholder'") is None
    assert executor_lacks("[TABLE_OR_VIEW_NOT_FOUND] The table or view `s`.`t` cannot be found.") is None
