"""Privacy attacks on shared artifacts, one class per file."""
