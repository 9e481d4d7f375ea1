"""A small identity provider on this machine: OpenID Connect as far as a sign-in needs it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "planner"


@dataclass
class Provider:
    """Claims about whoever signs in, and the codes that were given out with nonce and PKCE challenge."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "k1"}))
    signs_with: RSAKey | None = None

    def code_for(self, query: str) -> tuple[str, str]:
        """Code and state for the browser that comes with a query, once its person has agreed."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return code, asked["state"]

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an address."""
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        if path == "/keys":
            return 200, {"keys": [self.key.as_dict(private=False)]}
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if path != "/token" or asked is None or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": self._token(asked["nonce"])}

    def _token(self, nonce: str) -> str:
        now = int(time.time())
        about = {"iss": self.issuer, "aud": CLIENT, "sub": "u1", "nonce": nonce, "iat": now, "exp": now + 60}
        header = {"alg": "RS256", "kid": "k1"}
        return jwt.encode(header, about | self.claims, self.signs_with or self.key)


@contextmanager
def identity_provider() -> Iterator[Provider]:
    """A provider that answers until the end."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*provider.answer(self.path, {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._send(*provider.answer(self.path, {name: v[0] for name, v in parse_qs(body).items()}))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            pass

        def _send(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield provider
    server.shutdown()
    thread.join()
    server.server_close()
