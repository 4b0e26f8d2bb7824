"""Data in: read, decode, envelope, deduplicate, merge, record (design, "The way in")."""
