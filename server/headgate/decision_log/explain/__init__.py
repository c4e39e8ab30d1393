"""Explanations of decisions: from the decision log and the history beside it, in plain sentences."""
