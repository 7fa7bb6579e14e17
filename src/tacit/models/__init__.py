"""Language models that can be trained, attacked and saved."""
