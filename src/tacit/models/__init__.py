"""Language models and classifiers, as attackers and trainers meet them."""
