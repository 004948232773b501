"""The application: endpoints, refusals as JSON, the page, behind the gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from adascale.core.version import __version__
from adascale.decision.ood_detector import OODDetector
from adascale.export.exported import Exported
from adascale.service.gate import Gate, State, answer_of
from adascale.service.house import House
from adascale.service.judges import judge_of
from adascale.service.limits import Limits
from adascale.service.open_inference import v2_routes
from adascale.service.refusals import Refused
from adascale.service.v1 import v1_routes

PAGE = Path(__file__).parent / "page"
_SAVED_EVERY = 30.0  # seconds
_ABOUT = "Tells which images a classifier was never trained on."


class Service:
    """An ASGI application that serves detectors by name.

    copy: each detector gets a private copy of its network. token: what clients must send as bearer token. state: the
    folder of monitors and feedback; without it there is no monitor, and feedback is counted and not kept.
    """

    def __init__(
        self,
        detectors: Mapping[str, OODDetector | Exported],
        limits: Limits | None = None,
        *,
        token: str | None = None,
        state: Path | None = None,
        copy: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self.house = House({name: judge_of(one, copy) for name, one in detectors.items()}, self.limits, state)
        self.state = State(self.limits, None if token is None else token.encode())
        self._gate = Gate(_application(self.house, self.state), self.state, self.house.measures)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._gate(scope, receive, send)


def _application(house: House, state: State) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        house.start()
        saving = asyncio.create_task(_saving(house))
        yield
        saving.cancel()
        await asyncio.to_thread(house.stop)

    app = FastAPI(
        title="adascale", version=__version__, description=_ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.include_router(v1_routes(house))
    app.include_router(v2_routes(house, state))

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counters and histograms in the format of Prometheus."""
        for served in house.detectors.values():
            await asyncio.to_thread(served.monitored)
        return Response(house.measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    _answer_failures(app)
    if PAGE.is_dir():
        app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    return app


async def _saving(house: House) -> None:
    while True:
        await asyncio.sleep(_SAVED_EVERY)
        await asyncio.to_thread(house.save)


def _answer_failures(app: FastAPI) -> None:
    """Every failure is JSON with one line, whatever raised it."""

    async def refused(request: Request, error: Any) -> JSONResponse:
        return await answer_of(error, request.state.incoming)

    async def by_framework(request: Request, error: Any) -> JSONResponse:
        found = Refused(error.status_code, str(error.detail), dict(error.headers or {}))
        return await answer_of(found, request.state.incoming)

    async def invalid(request: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
        return await answer_of(Refused(422, f"{place}: {first['msg']}."), request.state.incoming)

    async def ours(request: Request, error: Any) -> JSONResponse:
        return await answer_of(Refused(500, "The service failed; its log says why."), request.state.incoming)

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, by_framework)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, ours)
