"""Runs scripts: makes the effects of statements, and answers them."""
