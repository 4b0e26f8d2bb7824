"""Holds keep tables readable from a time onward: the rules of holds, and the Iceberg tags that other engines respect."""
