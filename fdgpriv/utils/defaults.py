"""Names of the method that is audited by default and of the baseline, and the examples in the command line's help."""

METHOD = "stablefdg"  # the method audited by default
BASELINE = "fedavg"  # the method that accuracies are compared with
EXAMPLES = f"""examples:
  fdgpriv audit --method {METHOD} --preset quick --out runs/first
  fdgpriv audit --method {METHOD} --defense none gaussian:epsilon=4 --attack identification gan:steps=30
  fdgpriv audit --artifact mean.npy std.npy --groups 47+53
"""
