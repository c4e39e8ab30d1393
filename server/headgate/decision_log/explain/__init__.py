"""Why a request was decided as it was: from the decision log and the history beside it, in plain sentences."""
