"""What can be trained, traced and unlearned: one contract, one adapter per kind of model."""
