"""Adapters to Iceberg through PyIceberg: catalogs, tables, branches and tags, and commits on what was read."""
