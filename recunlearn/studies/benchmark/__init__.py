"""The benchmark: methods x models x forget sets x draws x seeds, cell by cell."""
