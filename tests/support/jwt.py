"""Tokens that Envoy's JWT filter accepts, and the filter that does."""

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER = "https://issuer.test"


class Issuer:
    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, subject: str) -> str:
        head = _encode(json.dumps({"alg": "RS256", "typ": "JWT", "kid": "test"}).encode())
        claims = {"iss": ISSUER, "sub": subject, "exp": int(time.time()) + 3600}
        signed = f"{head}.{_encode(json.dumps(claims).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encode(signature)}"

    def filter(self, prefix: str) -> dict[str, Any]:
        """Requires a token under that prefix, and keeps its claims for the filters behind."""
        provider = {
            "issuer": ISSUER,
            "local_jwks": {"inline_string": json.dumps({"keys": [self._public_key()]})},
            "payload_in_metadata": "claims",
        }
        return {
            "name": "envoy.filters.http.jwt_authn",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
                "providers": {"issuer": provider},
                "rules": [{"match": {"prefix": prefix}, "requires": {"provider_name": "issuer"}}],
            },
        }

    def _public_key(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        return {"kty": "RSA", "alg": "RS256", "kid": "test", "n": _number(numbers.n), "e": _number(numbers.e)}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(number: int) -> str:
    return _encode(number.to_bytes((number.bit_length() + 7) // 8, "big"))
