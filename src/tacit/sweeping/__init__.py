"""The verb `sweep`: many runs from one recipe, each trained, audited and reported, and one page over all."""

from tacit.sweeping.driver import Swept, sweep
from tacit.sweeping.recipe import Recipe, read_recipe

__all__ = ["Recipe", "Swept", "read_recipe", "sweep"]
