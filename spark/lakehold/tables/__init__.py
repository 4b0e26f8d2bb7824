"""Iceberg tables that lakehold writes: the types of their columns, their layout, and commits that nobody undoes."""
