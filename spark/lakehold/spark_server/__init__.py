"""A long-lived Spark Connect server on this machine, in which every command and task has a session of its own."""
