"""Lays out trials and controls, scores attacks and reaches verdicts."""
