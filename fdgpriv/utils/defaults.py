"""The only names of parts outside their own files and the papers' claims: what the command line starts from."""

METHOD = "stablefdg"  # audited where no method is named
BASELINE = "fedavg"  # which accuracies are compared with
EXAMPLES = f"""examples:
  fdgpriv audit --method {METHOD} --preset quick --out runs/first
  fdgpriv audit --method {METHOD} --defense none gaussian:epsilon=4 --attack identification gan:steps=30
  fdgpriv audit --artifact mean.npy std.npy --groups 47+53
"""
