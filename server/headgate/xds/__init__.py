"""Rules from an xDS server: the stream, what it sends, and the feed of the rule store."""
