"""A client for threads. One channel, safe to share; every call has a deadline."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

import grpc

from headgate_client import channel
from headgate_client.channel import Tls
from headgate_client.values import Decision, Descriptor, Entries, RateLimitError, decode_response, encode_request
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

DEFAULT_TIMEOUT_S = 1.0


class Client:
    """`Client("127.0.0.1:8081").should_rate_limit("edge", [{"user": "alice"}])`."""

    def __init__(
        self,
        addr: str,
        *,
        tls: Tls | None = None,
        token: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._metadata = channel.metadata(token)
        target, options = channel.target(addr), channel.options(tls)
        if tls is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            self._channel = grpc.secure_channel(target, channel.credentials(tls), options)
        self._call = self._channel.unary_unary(
            channel.METHOD,
            request_serializer=RateLimitRequest.SerializeToString,
            response_deserializer=RateLimitResponse.FromString,
        )

    def should_rate_limit(
        self,
        domain: str,
        descriptors: Iterable[Descriptor | Entries],
        hits: int = 0,
        *,
        timeout_s: float | None = None,
    ) -> Decision:
        """The server's decision. `hits` 0 leaves the cost to the server, which takes 1.

        Raises RateLimitError when there is none within the timeout.
        """
        request = encode_request(domain, descriptors, hits)
        try:
            response = self._call(request, timeout=timeout_s or self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise RateLimitError(error.code().name, error.details() or "") from error
        return decode_response(response)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()
