"""Reads the records of a source from Kafka or from files: fetch offsets, plan offset ranges, read their records."""
