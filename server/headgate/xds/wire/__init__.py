"""Messages of the stream, generated from protos/: private, wire-compatible with the official ones."""
