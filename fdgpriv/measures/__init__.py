"""What the evaluator measures of a run with all it knows: no adversary, but evidence in the ledgers of claims."""
