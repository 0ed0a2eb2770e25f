"""Metrics of reconstructed images and classifiers."""
