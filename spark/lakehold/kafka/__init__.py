"""Clients of Kafka and of schema registries, and the options with which they and Spark connect."""
