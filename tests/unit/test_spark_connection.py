"""The address of Spark Connect that tasks take from Airflow's connection `lakehold_spark`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ADDRESSES = {
    "spark-connect://spark.example:15002": "sc://spark.example:15002/",
    '{"conn_type": "generic", "host": "sc://spark.example"}': "sc://spark.example/",
    "generic://me:a%20token%3B@spark.example:443/?use_ssl=True": (
        "sc://spark.example:443/;user_id=me;token=a%20token%3B;use_ssl=True"
    ),
    '{"conn_type": "generic", "host": "spark.example", "password": "a/b+c=="}': (
        "sc://spark.example/;token=a%2Fb%2Bc%3D%3D"
    ),
    '{"conn_type": "generic", "port": 15002}': "Airflow's connection lakehold_spark has no host",
}

PRINTS_ADDRESSES = """
import json, os, sys
from lakehold.errors import SettingsError
from lakehold.orchestration.lakes import spark_remote

found = [spark_remote()]
for connection in json.loads(sys.argv[1]):
    os.environ["AIRFLOW_CONN_LAKEHOLD_SPARK"] = connection
    try:
        found.append(spark_remote())
    except SettingsError as error:
        found.append(error.message)
print(json.dumps(found))
"""


def test_a_connection_of_any_type_gives_the_address(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRINTS_ADDRESSES, json.dumps(list(ADDRESSES))],
        env={**environment, "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == [None, *ADDRESSES.values()]
