"""Federated domain generalization methods, one class per file."""
