"""One thread a process, as test workers and their children share two cores; no deadline, as a busy machine is no bug."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("tacit", deadline=None)
settings.load_profile("tacit")
