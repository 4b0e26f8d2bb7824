"""Queries inside statements: which tables they read, and how the changes of their results follow from those of the tables."""
