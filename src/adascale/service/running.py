"""The server: uvicorn, with patience that ends, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from adascale.core.errors import InputError
from adascale.service.app import Service
from adascale.service.limits import Limits
from adascale.service.logs import log

_LAST = 10.0  # seconds for a client to read the end of an answer
# A pass takes Python's lock again after each layer; by default another thread may keep it for 5 ms.
_SWITCH_S = 0.0002


def run(service: Service, listening: socket.socket) -> None:
    """Serve at this socket (see `bound`) until SIGTERM or Ctrl-C."""
    host = listening.getsockname()[0]
    if service.state.token is None and not is_loopback(host):
        log("everyone who reaches this address may use the service; give --token-file", logging.WARNING, host=host)
    sys.setswitchinterval(_SWITCH_S)
    with listening:
        _Server(service).run([listening])
    log("stopped")


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def bound(host: str, port: int) -> socket.socket:
    """A socket at this address. port 0: any that is free; the log says which."""
    made = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        if made is not None:
            made.close()
        raise InputError(f"host={host} port={port} cannot be served: {error}.") from error
    return made


class _Server(uvicorn.Server):
    """At SIGTERM or Ctrl-C readiness ends, new work is refused, what is under way is answered; then the port closes."""

    def __init__(self, service: Service) -> None:
        self._service, limits = service, service.limits
        protocol: Any = type("Protocol", (_Impatient,), {"limits": limits})
        super().__init__(
            uvicorn.Config(
                service,
                http=protocol,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=int(limits.deadline_s + 5),
                backlog=max(64, limits.connections),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            host, port = one.getsockname()[:2]
            place = f"[{host}]" if ":" in host else host
            log("listening", url=f"http://{place}:{port}", detectors=list(self._service.house.detectors))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._service.state.draining:  # asked twice
            self.should_exit = self.force_exit = True
        self._service.state.drain()

    async def on_tick(self, counter: int) -> bool:
        if self._service.state.drained:
            self.should_exit = True
        return await super().on_tick(counter)


class _Impatient(H11Protocol):
    """uvicorn's protocol, with limits for heads that never end, for clients that do not read, and for connections."""

    limits: Limits
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections and not self._close_an_idle_one():
            self._refuse(503, "Too many connections.", [(b"retry-after", b"1")])
        else:
            self._wait()

    def _close_an_idle_one(self) -> bool:
        """Close the connection that has waited longest for another request, if one does."""
        open_ = [one for one in self.connections if isinstance(one, H11Protocol) and not one.transport.is_closing()]
        idle = {one.timeout_keep_alive_task.when(): one for one in open_ if one.timeout_keep_alive_task}
        if idle:
            idle[min(idle)].timeout_keep_alive_handler()
        return bool(idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._relax()
        else:  # a part of a head, or of a body that nobody wants
            self._wait()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(_LAST, self.transport.abort)

    def _wait(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(self.limits.header_s, self._give_up)

    def _relax(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(408, "The head of the request was not complete in time.")

    def _refuse(self, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Answer without a request, and close."""
        body = b'{"error": "%s"}' % message.encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        head += [(b"connection", b"close"), *(headers or [])]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            events = (h11.Response(status_code=status, headers=head), h11.Data(data=body), h11.EndOfMessage())
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self.loop.call_later(_LAST, self.transport.abort)
