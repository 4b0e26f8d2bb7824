"""The way in: read, decode, apply the envelope, deduplicate, merge, record (design, "The way in")."""
