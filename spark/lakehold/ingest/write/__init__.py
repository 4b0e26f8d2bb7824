"""Writes the changes of one table: evolves its schema, merges, publishes, and records messages in error."""
