"""Language models and classifiers, as attackers and trainers meet them."""

from tacit.common.libraries import require_library
from tacit.errors import ConfigError

require_library("torch", ConfigError)
