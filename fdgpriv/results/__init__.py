"""The results contract, utility, and accuracy over targets and seeds."""
