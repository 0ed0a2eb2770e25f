"""The command line: options and their validation, without importing torch."""
