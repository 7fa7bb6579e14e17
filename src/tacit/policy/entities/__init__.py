"""Named entities: spaCy pipelines, Presidio and token classifiers, with kinds in one vocabulary."""
