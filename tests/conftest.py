"""One thread a process: test workers and their children share two cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
