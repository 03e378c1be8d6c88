"""Conformance tests and known-answer worlds that ship with the package."""
