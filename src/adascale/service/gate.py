"""The gate that every request passes: its id, its deadline, the token, the refusal of new work at the end, the log."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adascale.service.bodies import Incoming
from adascale.service.limits import Limits
from adascale.service.logs import LOG, log
from adascale.service.measures import Measures
from adascale.service.refusals import Refused, busy

# These answer without a token: probes of orchestrators send none, and the page's files hold nothing of yours.
OPEN = ("/v2/health/live", "/v2/health/ready")
_PROTECTED = ("/v1/", "/v2", "/metrics", "/openapi.json")
_ID = re.compile(r"[\w.-]{1,64}")
# No page of another site may frame ours, and browsers take every answer for what it says it is.
_SAFE = ((b"x-frame-options", b"DENY"), (b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


@dataclass(eq=False)
class State:
    """What the gate and the server know together. active: requests under way. draining: no new work is taken on."""

    limits: Limits
    token: bytes | None = None
    active: int = 0
    draining: bool = False
    stopped_at: float = field(default=0.0)

    def drain(self) -> None:
        self.draining, self.stopped_at = True, time.monotonic()

    @property
    def drained(self) -> bool:
        """Whether the port may be closed: nothing is under way, or it takes longer than any request may."""
        waited = time.monotonic() - self.stopped_at
        quiet = not self.active and waited >= self.limits.drain_s
        return self.draining and (quiet or waited > self.limits.drain_s + self.limits.deadline_s + 5)


class Gate:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, state: State, measures: Measures) -> None:
        self.app, self.state, self.measures = app, state, measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        passage = _Passage(scope, receive, send, self.state)
        self.state.active += 1
        try:
            refused = self._refusal(scope, passage)
            if refused is None:
                await self.app(scope, passage.incoming.receive, passage.send)
            else:
                await (await answer_of(refused, passage.incoming))(scope, receive, passage.send)
        except (ClientDisconnect, asyncio.CancelledError):
            passage.status = passage.status or 499  # the client has gone
        except Exception:  # which the application has answered
            LOG.exception("an error of ours", extra={"fields": {"request_id": passage.id}})
        finally:
            self.state.active -= 1
            self._record(scope, passage)

    def _refusal(self, scope: Scope, passage: _Passage) -> Refused | None:
        path = scope["path"]
        if path in OPEN:
            return None
        if self.state.draining:
            return Refused(503, "The service is stopping.", {"Retry-After": "5", "Connection": "close"})
        if self.state.active > self.state.limits.connections:
            return busy(f"{self.state.active} requests are under way")
        if scope["method"] == "POST" and passage.headers.get(b"sec-fetch-site") == b"cross-site":
            return Refused(403, "Pages of other sites may not send images here.")
        if self.state.token is not None and path.startswith(_PROTECTED) and not self._knows_token(passage):
            return Refused(401, "Send the header 'Authorization: Bearer TOKEN'.", {"WWW-Authenticate": "Bearer"})
        return None

    def _knows_token(self, passage: _Passage) -> bool:
        """Compared by hashes, in the same time whatever was sent."""
        scheme, _, given = passage.headers.get(b"authorization", b"").partition(b" ")
        sent, known = (hashlib.sha256(part).digest() for part in (given.strip(), self.state.token or b""))
        return hmac.compare_digest(sent, known) and scheme.lower() == b"bearer"

    def _record(self, scope: Scope, passage: _Passage) -> None:
        endpoint = getattr(scope.get("route"), "path", "other")
        seconds = time.monotonic() - passage.began
        self.measures.requests.labels(endpoint, str(passage.status)).inc()
        self.measures.latency.labels(endpoint).observe(seconds)
        if scope["path"] in OPEN and passage.status == 200:
            return
        told = {"request_id": passage.id, "method": scope["method"], "path": scope["path"][:200]}
        told |= {"status": passage.status, "ms": round(1000 * seconds, 1)}
        log("request", **told, **scope["state"].get("told", {}))


class _Passage:
    """One request on its way through the gate."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, state: State) -> None:
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        given = self.headers.get(b"x-request-id", b"").decode("latin1")
        self.id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        self.status, self.began = 0, time.monotonic()
        self._send, self._state = send, state
        shared: dict[str, Any] = scope.setdefault("state", {})
        until = asyncio.get_running_loop().time() + state.limits.deadline_s
        self.incoming = Incoming(receive, until)
        shared |= {"until": until, "incoming": self.incoming}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", []), (b"x-request-id", self.id.encode()), *_SAFE]
            if self._state.draining and (b"connection", b"close") not in headers:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)


async def answer_of(refused: Refused, incoming: Incoming) -> JSONResponse:
    """The answer that says why a request is not served."""
    if refused.status != 408:
        await incoming.discard()
    return JSONResponse({"error": refused.message}, refused.status, headers=refused.headers)
