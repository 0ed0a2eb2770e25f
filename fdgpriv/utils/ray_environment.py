"""Settings of Ray in the environment, which must stand there before it is imported: its usage statistics are off.

Its processes get the priority of this one; by default Ray lowers it, and the training is the work itself.
"""

import os

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # as in future versions; otherwise it warns
    "RAY_worker_niceness": "0",
}
