"""Artifacts that were made elsewhere."""
