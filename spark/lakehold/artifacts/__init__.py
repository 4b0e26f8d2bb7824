"""Jars and archives that pip cannot bring: exact versions by SHA-256, fetched once with Maven and cached."""

from __future__ import annotations

from lakehold.artifacts.cache import cache_root, directory, is_cached, jars
from lakehold.artifacts.maven import java_executable
from lakehold.artifacts.sets import STACK, ArtifactSet, coordinates, find_set, set_names

__all__ = [
    "STACK",
    "ArtifactSet",
    "cache_root",
    "coordinates",
    "directory",
    "find_set",
    "is_cached",
    "jars",
    "java_executable",
    "set_names",
]
