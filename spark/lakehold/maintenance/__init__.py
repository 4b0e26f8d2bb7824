"""Maintenance keeps tables small and fast: history that nothing needs is expired, and small files become large ones."""
