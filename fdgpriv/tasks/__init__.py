"""The secrets that attacks infer, one file each: metric, chance, and artifact-free baselines."""
