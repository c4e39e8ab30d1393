"""Commands of the decision log: `headgate explain`, `headgate tail` and `headgate rules replay`."""
