"""The rule plane: a log of changes to rules, kept by a root, handed on by relays, and followed by nodes."""
