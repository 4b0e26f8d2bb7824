"""PostgreSQL as a captured database."""
