"""Holds keep tables readable from a time on: their rules, and the tags that make every engine keep to them."""
