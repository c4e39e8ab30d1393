"""Names of limit keys between regions: window, shard key and limit key in one, so that a cell has one identity."""


def exchange_name(key: bytes, place: bytes, window_ms: int) -> bytes:
    """Build a key's name between regions: its window, what chooses its shard if that is not the key, the key."""
    return b"%x:" % window_ms + exchange_key(key, place)


def exchange_key(key: bytes, place: bytes) -> bytes:
    """The part of the name that a cell's identity has beside the window."""
    return b":" + key if place == key else b"%x:" % len(place) + place + key


def split_name(name: bytes) -> tuple[int, bytes]:
    """The window, and the exchange key. Raises ValueError where it is no name of ours."""
    window, colon, key = name.partition(b":")
    if not colon:
        raise ValueError("no window")
    return int(window, 16), key


def split_exchange_key(key: bytes) -> tuple[bytes, bytes]:
    """The key, and what chooses its shard. Raises ValueError where it is none of ours."""
    length, colon, rest = key.partition(b":")
    if not colon:
        raise ValueError("no length")
    if not length:
        return rest, rest
    size = int(length, 16)
    if not 0 < size < len(rest):
        raise ValueError("a length that is not there")
    return rest[size:], rest[:size]


def key_of_name(name: bytes) -> bytes:
    """The limit key that is called so between regions."""
    return split_exchange_key(split_name(name)[1])[0]
