"""One thread a process, as test workers share two cores with their children; no deadline: a busy machine is no bug."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("tacit", deadline=None)
settings.load_profile("tacit")
