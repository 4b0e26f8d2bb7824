"""Writes the changes of one table: evolves its schema, merges, publishes, and keeps what is wrong with messages."""
