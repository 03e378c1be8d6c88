"""Metrics as pure functions of arrays."""
