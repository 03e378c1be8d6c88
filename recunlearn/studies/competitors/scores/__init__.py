"""One competitor a file, found by scanning this folder."""
