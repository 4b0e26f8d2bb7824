"""Turns the bytes of Kafka messages into typed Spark columns; README.md says which module does what."""
