"""Metrics: the status of a lake as Prometheus families, and an endpoint that serves them. Starts no Spark."""
