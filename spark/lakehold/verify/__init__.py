"""Compares captured tables with their database, row by row, while both change."""
