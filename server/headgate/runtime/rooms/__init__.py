"""One module per room of a serving process: how a feature is put together from the settings. See runtime/room.py."""
