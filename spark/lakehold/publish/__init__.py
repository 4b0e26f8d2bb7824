"""Changes that somebody follows over restarts: to output tables, and to the callbacks of durable clients."""
