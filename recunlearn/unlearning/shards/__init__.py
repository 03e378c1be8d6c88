"""Unlearning by shards: partitions, sub-models trained apart, and what makes one model of them."""
