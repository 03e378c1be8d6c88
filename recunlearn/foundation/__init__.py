"""Errors, paths, seeds, settings and the artifact store. Imports no torch."""
