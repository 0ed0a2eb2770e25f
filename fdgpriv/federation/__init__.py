"""Clients, partitions, wire, transcript and engines."""
