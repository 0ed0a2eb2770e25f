"""Differential privacy: accounting, and lower bounds on epsilon from attacks."""
