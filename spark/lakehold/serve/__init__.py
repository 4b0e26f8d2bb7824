"""The door for programs that are not Python: a server that speaks Arrow Flight SQL."""
