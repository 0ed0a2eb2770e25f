"""One file for each kind of artifact: reads the recorded ones of a run, and simulates further ones."""
