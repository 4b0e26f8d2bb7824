"""Subscriptions that outlast restarts: published to output tables, or delivered to the callbacks of durable clients."""
