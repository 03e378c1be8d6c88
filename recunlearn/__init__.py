"""Unlearning in recommender systems: who is hard to forget, before you unlearn."""

__version__ = "0.1.0"
