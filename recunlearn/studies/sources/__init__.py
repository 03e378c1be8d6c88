"""Where the subject of a run comes from: what the stages of recommenders and of texts do not share."""
