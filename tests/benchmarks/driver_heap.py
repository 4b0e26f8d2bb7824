"""Measures the heap of the Spark driver that this process has started, with the tools of its Java."""

from __future__ import annotations

import os
import subprocess


def driver_heap_bytes() -> int:
    """Return how much the driver's objects take, after a collection of those that nothing refers to."""
    listed = _output("ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid()))
    (pid,) = (line.split()[0] for line in listed.splitlines() if "org.apache.spark.deploy.SparkSubmit" in line)
    # The last line is the total: "Total  <objects>  <bytes>".
    return int(_output("jcmd", pid, "GC.class_histogram").splitlines()[-1].split()[2])


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
