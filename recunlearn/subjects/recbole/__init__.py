"""The adapter for RecBole recommenders."""
