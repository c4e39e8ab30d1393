"""The reason for which a connection must end at once."""


class ProtocolViolation(Exception):
    """The connection must end: a GOAWAY with this code, and why, for the metric."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason
