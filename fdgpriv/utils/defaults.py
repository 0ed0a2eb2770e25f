"""Names known to the command line before torch is imported: default method, baseline, deliberate bugs, examples."""

from typing import Literal, get_args

METHOD = "stablefdg"  # the method audited by default
BASELINE = "fedavg"  # the method that accuracies are compared with
DEFENSE = "gaussian"  # the defense of examples and suggestions
Bug = Literal["half-noise", "wrong-sensitivity"]  # deliberate errors in a defense's noise (--inject-bug)
BUGS: tuple[str, ...] = get_args(Bug)
FIGURE_FORMATS = ("pdf", "png", "svg")  # of the figures for a paper (--figures)
AUTO = "auto"  # the address (--ray) of the cluster that runs on this machine
TENSORBOARD, MLFLOW = "tensorboard", "mlflow"
LOGS = (TENSORBOARD, MLFLOW)  # what --log writes to: names of packages, and of the extras that install them
EPSILON_DRAWS = 100_000  # T, per world, of the self test's epsilon checks
EXAMPLES = f"""examples:
  fdgpriv audit --method {METHOD} --preset quick --out runs/first
  fdgpriv audit --method {METHOD} --defense none {DEFENSE}:epsilon=4 --attack identification gan:steps=30
  fdgpriv audit --artifact mean.npy std.npy --groups 47+53
"""
