"""The command line: options and what they may be, checked without importing torch."""
