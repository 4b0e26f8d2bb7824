"""Which times a table is readable at, and which snapshot each of them means."""
