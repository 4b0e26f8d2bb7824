"""Adapters to Iceberg through PyIceberg: catalogs, tables, branches and tags, and optimistic commits."""
