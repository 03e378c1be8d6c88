"""What makes records by training, unlearning or differentiating."""
