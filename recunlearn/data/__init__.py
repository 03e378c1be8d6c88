"""Interaction logs: readers, checks, id maps and splits. Imports no torch."""
