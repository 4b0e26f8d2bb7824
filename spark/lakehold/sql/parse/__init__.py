"""Parses statements: text -> statement, one module for each kind."""
