"""Compares tables of the lake with their database, row by row, while both change."""
