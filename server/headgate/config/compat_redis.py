"""ratelimit's REDIS_… variables as one origin URL. Messages never repeat a password."""

from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode


class RedisProblem(Exception):
    """These variables describe a Redis that Headgate can't use; the message says why."""


def redis_origin(given: Mapping[str, str], is_true: Callable[[str], bool]) -> str:
    """`redis://…`, `redis+cluster://…` or `redis+sentinel://…`, with `rediss` for TLS."""
    url = given["REDIS_URL"]
    if url.startswith("/"):
        raise RedisProblem(
            "REDIS_URL: a Unix socket is not supported: give host:port (and REDIS_SOCKET_TYPE=tcp, or nothing)"
        )
    kind = given.get("REDIS_TYPE", "SINGLE").upper()
    scheme, separator, place = url.partition("://")
    if not separator:
        scheme, place = "redis", url
    elif kind != "SINGLE" or scheme not in ("redis", "rediss"):
        raise RedisProblem(f"REDIS_URL: expected host:port without a scheme with REDIS_TYPE={kind}")
    if is_true("REDIS_TLS"):
        scheme = "rediss"
    login = "" if "@" in place else _login(given.get("REDIS_AUTH", ""))
    parameters = _tls_parameters(given, is_true) if scheme == "rediss" else {}
    match kind:
        case "SINGLE":
            return f"{scheme}://{login}{place}{_query(parameters)}"
        case "CLUSTER":
            return f"{scheme}+cluster://{login}{_hosts(place.split(','))}{_query(parameters)}"
        case "SENTINEL":
            service, *sentinels = place.split(",")
            if not sentinels:
                raise RedisProblem("REDIS_URL: expected `name,host:port,…` with REDIS_TYPE=SENTINEL")
            parameters |= _sentinel_parameters(given.get("REDIS_SENTINEL_AUTH", ""))
            name = quote(service.strip(), safe="")
            return f"{scheme}+sentinel://{login}{_hosts(sentinels)}/{name}{_query(parameters)}"
    raise RedisProblem(f"REDIS_TYPE: expected SINGLE, CLUSTER or SENTINEL, got {kind!r}")


def _hosts(hosts: list[str]) -> str:
    return ",".join(host.strip() for host in hosts)


def _login(auth: str) -> str:
    """User and password of a URL, from `password` or `user:password`."""
    if not auth:
        return ""
    user, colon, password = auth.partition(":")
    if not colon:
        user, password = "", auth
    return f"{quote(user, safe='')}:{quote(password, safe='')}@"


def _tls_parameters(given: Mapping[str, str], is_true: Callable[[str], bool]) -> dict[str, str]:
    names = {"REDIS_TLS_CACERT": "ca", "REDIS_TLS_CLIENT_CERT": "cert", "REDIS_TLS_CLIENT_KEY": "key"}
    parameters = {parameter: given[name] for name, parameter in names.items() if name in given}
    if is_true("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"):
        parameters["verify"] = "chain"
    return parameters


def _sentinel_parameters(auth: str) -> dict[str, str]:
    user, colon, password = auth.partition(":")
    if not auth:
        return {}
    return {"sentinel_user": user, "sentinel_password": password} if colon else {"sentinel_password": auth}


def _query(parameters: Mapping[str, str]) -> str:
    return f"?{urlencode(parameters)}" if parameters else ""
