"""Ingests messages into tables: read, decode, apply the envelope, deduplicate, merge, record."""
