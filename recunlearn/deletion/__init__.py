"""Deletion requests: from a file of users to a verified receipt."""
