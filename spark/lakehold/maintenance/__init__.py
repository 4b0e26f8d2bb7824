"""Keeping tables small and quick: what nobody needs any more goes, small files become large ones."""
