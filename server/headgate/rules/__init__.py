"""Rules: reading and checking their files, compiling them, finding the rule of a request, and following changes."""
