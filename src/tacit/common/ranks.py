"""Which of several processes this one is, by the environment that torchrun sets."""

import os


def is_launched() -> bool:
    """Whether torchrun, or a launcher with the same environment, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def prints() -> bool:
    """Whether this process prints results and progress: the first of several does."""
    return not is_launched() or int(os.environ["RANK"]) == 0
