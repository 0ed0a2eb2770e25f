"""Kinds of artifact that attacks are evaluated on: what a run recorded of each, and how an adversary simulates more of it."""
