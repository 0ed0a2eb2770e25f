"""Federated training: data partitions, message exchange, transcript and the local engine."""
