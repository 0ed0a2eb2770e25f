"""Helpers that know nothing of federated learning: files, arrays, records, caches, console."""
