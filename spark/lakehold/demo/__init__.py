"""The demo: a small shop in PostgreSQL, its changes recorded or live, and its tables in a lake."""
