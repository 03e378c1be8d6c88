"""Tables and figures as data first, then drawn."""
