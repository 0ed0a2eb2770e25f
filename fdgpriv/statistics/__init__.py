"""Intervals, paired tests and multiplicity: numbers in, numbers out."""
