"""Defenses applied on the client to the artifacts it shares, one class per file."""
