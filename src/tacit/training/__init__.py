"""Executes a plan: checks, pools, the loop, updates, clipped gradients, noise, sampling."""

from tacit.common.libraries import require_library
from tacit.errors import ConfigError

require_library("torch", ConfigError)
