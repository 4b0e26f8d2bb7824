"""Turns the bytes of Kafka messages into typed Spark columns; README.md lists the modules."""
