"""The endpoints under /v1: verdicts, decisions, detectors, the last verdicts, feedback."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from adascale.service.bodies import Lease, check_head
from adascale.service.house import House, Result
from adascale.service.judges import COLUMNS, EXPLAINED
from adascale.service.lane import Answered, Failed, Kind
from adascale.service.pictures import Picture, Unreadable, is_single, pictures_of
from adascale.service.refusals import Refused
from adascale.service.schemas import IMAGES, Described, Opinion, Opinions, Verdict, failures

Name = Annotated[str | None, Query(description="The detector; by default the first.", examples=["default"])]
_WORK = failures(404, 408, 413, 415, 422, 504)


def v1_routes(house: House) -> APIRouter:
    """The endpoints of a service."""
    router = APIRouter(prefix="/v1")

    @router.post("/score", response_model=list[Verdict], responses=_WORK, openapi_extra=IMAGES)
    async def score(
        request: Request,
        detector: Name = None,
        explain: Annotated[bool, Query(description="Also probability, evidence and explanation.")] = False,
    ) -> JSONResponse:
        """Score, p-value and decision for each image of the request, in order."""
        return await _judged(house, request, detector, "explain" if explain else "score")

    @router.post("/decide", response_model=list[Verdict], responses=_WORK, openapi_extra=IMAGES)
    async def decide(request: Request, detector: Name = None) -> JSONResponse:
        """The decision alone, mostly at the price of a forward pass; score and p-value are null."""
        return await _judged(house, request, detector, "decide")

    @router.get("/detectors", responses=failures())
    async def detectors() -> list[Described]:
        """The detectors, their promises and the histograms of their calibration scores."""
        return [Described.model_validate(served.described()) for served in house.detectors.values()]

    @router.get("/recent", response_model=list[dict[str, Any]], responses=failures(404, 422))
    async def recent(detector: Name = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> JSONResponse:
        """The last verdicts, newest first; the images themselves are not kept."""
        return JSONResponse(house.named(detector).recent(limit))

    @router.get("/monitor", response_model=dict[str, Any], responses=failures(404, 422))
    async def monitor(detector: Name = None) -> JSONResponse:
        """What the monitor has seen: evidence, alarms, the estimated share of OOD images, the rate of flagged ones."""
        return JSONResponse(await asyncio.to_thread(house.named(detector).monitored))

    @router.post("/feedback", responses=failures(404, 408, 413, 422))
    async def feedback(opinion: Opinion) -> Opinions:
        """Say whether an image was of a known kind; it is appended to a log, by the id of its verdict."""
        for served in house.detectors.values():
            if (verdict := served.verdict(opinion.id)) is not None:
                counts = await asyncio.to_thread(served.feedback.add, verdict, opinion.label)
                return Opinions(id=opinion.id, label=opinion.label, counts=counts)
        raise Refused(404, f"No verdict with this id is among the last {house.limits.remember} of a detector.")

    return router


async def _judged(house: House, request: Request, name: str | None, kind: Kind) -> JSONResponse:
    served, state = house.named(name), request.state
    check_head(request.headers, house.limits)
    served.lane.check()
    single, lease = is_single(_content_type(request)), house.lease()
    try:
        given = await _pictures(house, request, lease)
        results = await house.judged(served, given, kind, lease, state.until)
    finally:
        lease.drop()
    if single:
        _check_single(results[0])
    entries = [_entry(*result, kind) for result in results]
    state.told = {"detector": served.name, "images": len(entries), "flagged": sum(e["is_ood"] is True for e in entries)}
    return JSONResponse(entries)


async def _pictures(house: House, request: Request, lease: Lease) -> list[Picture]:
    kind, most, until = _content_type(request), house.limits.max_images, request.state.until
    body = await request.state.incoming.body(house.limits, lease)
    if is_single(kind):
        return pictures_of(body, kind, most)
    return await house.in_pool(lambda: pictures_of(body, kind, most), until)  # a long form would hold up the loop


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "")


def _check_single(result: Result) -> None:
    """Where there is one image, its failure is that of the request."""
    if isinstance(result[2], Unreadable):
        raise Refused(422, f"The body cannot be read as an image: {result[2]}.")
    if isinstance(result[2], Exception):
        raise refused(result[2])


def refused(error: Exception) -> Refused:
    """The failure of an image as that of its request."""
    return Refused(422 if isinstance(error, Failed) and error.expected else 500, str(error))


def _entry(id: str, name: str, found: Answered | Exception, kind: Kind) -> dict[str, Any]:
    columns = (*COLUMNS, *EXPLAINED) if kind == "explain" else COLUMNS
    row = found.row if isinstance(found, Answered) else {"error": str(found)}
    return {"id": id, "name": name, **{column: row.get(column) for column in columns}}
