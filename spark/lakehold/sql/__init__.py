"""Control: text -> statement -> plan -> run. Above `plan` nothing has effects, and only `engine` knows Spark."""
