"""Difficulty scores that CUD is compared with, by the field's names."""
