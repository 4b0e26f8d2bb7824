"""Definitions -> wanted: what a source needs upstream, and the connections to it."""
