"""`pyspark-client` beside `pyspark`: refused, and explained, where it has overwritten files of another version.

A folder on the path plays the environment into which pip has put both, with files and records as pip writes them.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

import lakehold
from lakehold.errors import EnvironmentMissing
from lakehold.pyspark_conflict import refuse_overwritten_pyspark


class Environment:
    """A folder of installed packages, first on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pyspark").mkdir(parents=True)

    def install(self, package: str, version: str, **modules: str) -> None:
        record = []
        for module, content in modules.items():
            name = f"pyspark/{module}.py"
            (self.folder / name).write_text(content)
            digest = urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        information = self.folder / f"{package.replace('-', '_')}-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        (information / "RECORD").write_text("".join(record))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    return Environment(tmp_path / "site-packages")


def test_files_of_another_version_are_refused_with_the_commands_that_help(environment: Environment) -> None:
    environment.install("pyspark", "4.1.4", __init__="import pyspark.core", core="own", util="same")
    environment.install(
        "pyspark-client", "4.2.0", __init__="import pyspark.connect", core="its", util="same", connect=""
    )
    with pytest.raises(EnvironmentMissing) as refusal:
        lakehold.__getattr__("connect")  # what the first use calls, and here another test may have used it before
    assert refusal.value.code == "pyspark-overwritten"
    assert refusal.value.detail.startswith(
        "Files of pyspark 4.1.4, such as pyspark/__init__.py, are now those of pyspark-client 4.2.0: 2 in all."
    )
    assert refusal.value.hint == (
        "Run pip uninstall --yes pyspark-client, then pip install --force-reinstall --no-deps pyspark==4.1.4."
    )


def test_a_command_ends_with_the_explanation_before_it_imports_pyspark(environment: Environment) -> None:
    environment.install("pyspark", "4.1.4", __init__="", core="")
    environment.install("pyspark-client", "4.2.0", __init__="raise ImportError('mixed')")
    starts_command = (
        f"import sys; sys.path.insert(0, {str(environment.folder)!r}); import lakehold.cli; lakehold.cli.main()"
    )
    ended = subprocess.run([sys.executable, "-c", starts_command], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "error: pyspark-client has overwritten pyspark\ndetail: Files of pyspark 4.1.4, such as"
    )
    assert ended.stderr.endswith("code: pyspark-overwritten\n")


@pytest.mark.parametrize("version", ["4.1.4", "4.2.0"])
def test_pyspark_that_is_whole_is_not_refused(environment: Environment, version: str) -> None:
    environment.install("pyspark-client", version, core="its" if version == "4.2.0" else "own", connect="")
    environment.install("pyspark", "4.1.4", core="own")
    refuse_overwritten_pyspark()


def test_pyspark_alone_is_not_refused(environment: Environment) -> None:
    environment.install("pyspark", "4.1.4", core="changed since")
    refuse_overwritten_pyspark()
