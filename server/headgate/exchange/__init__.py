"""All regions: what a region sends its peers, what it takes in from them, and how its quota slices move."""
