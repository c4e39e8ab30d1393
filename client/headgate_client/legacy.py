"""The first clients, `Client` and `AsyncClient`: they work as they did, and warn that they go with the next release.

`Headgate` and `AsyncHeadgate` take their place. They know a domain, a policy for failures and a breaker,
where these raise RateLimitError and leave the rest to the caller.
"""

import warnings
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

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
        warnings.warn(
            "Client goes with the next release: use headgate_client.Headgate",
            DeprecationWarning,
            stacklevel=2,
        )
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


class AsyncClient:
    """`await AsyncClient("127.0.0.1:8081").should_rate_limit("edge", [{"user": "alice"}])`."""

    def __init__(
        self,
        addr: str,
        *,
        tls: Tls | None = None,
        token: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        warnings.warn(
            "AsyncClient goes with the next release: use headgate_client.AsyncHeadgate",
            DeprecationWarning,
            stacklevel=2,
        )
        self._timeout_s = timeout_s
        self._metadata = channel.metadata(token)
        target, options = channel.target(addr), channel.options(tls)
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, channel.credentials(tls), options)
        self._call = self._channel.unary_unary(
            channel.METHOD,
            request_serializer=RateLimitRequest.SerializeToString,
            response_deserializer=RateLimitResponse.FromString,
        )

    async def should_rate_limit(
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
            response = await self._call(request, timeout=timeout_s or self._timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise RateLimitError(error.code().name, error.details() or "") from error
        return decode_response(response)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()
