"""Similarity, anchors, CUD and statistics: pure functions of records."""
