"""What the service refuses, and that it stays well whatever is sent to it."""

from __future__ import annotations

import base64
import io
import json
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from PIL import Image

from adascale import OODDetector, Preprocess
from adascale.core.errors import InputError
from adascale.service.lane import Lane
from adascale.service.limits import Limits
from adascale.service.logs import start_logs
from adascale.service.refusals import Refused
from tests.service.hostile import GOOD, bomb, eventually, hostile, slow
from tests.service.serving import LET_THROUGH, detector, metric, png, running, score, talk, together, wait_until_ready

INSIDE = 'adascale_queue_images{detector="d"}'


@pytest.fixture(scope="module")
def waiting() -> OODDetector:
    return detector("mls")


@pytest.fixture
def held() -> Iterator[None]:
    LET_THROUGH.clear()
    yield
    LET_THROUGH.set()


def test_images_that_would_wait_beyond_their_deadline_are_refused_at_once() -> None:
    lane = Lane("d", lambda images, kind: [], lambda items, found, seconds: None, Limits(queue=64, deadline_s=30.0))
    lane.admit(20)  # nothing is known yet about how fast it is
    lane._rate = 2.0  # ten seconds of work
    lane.check()
    lane._rate = 1.0
    with pytest.raises(Refused) as refused:
        lane.check()
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "20")
    lane.leave(20)
    lane._rate = 0.01
    lane.check()  # an idle service tries, however slow it was


def test_overload_is_answered_at_once_and_then_all_is_well(waiting: OODDetector, tmp_path: Path) -> None:
    with running({"d": waiting}, tmp_path, queue=8, max_images=4, max_batch=2) as client:
        LET_THROUGH.clear()
        calls: list[Any] = [lambda: score(client, GOOD)] * 30

        def release() -> None:
            refused = 'adascale_requests_total{endpoint="/v1/score",status="503"}'
            assert eventually(lambda: metric(client, refused) == 22)  # while the others still wait
            assert metric(client, INSIDE) == 8
            LET_THROUGH.set()

        answers = [answer for answer in together([*calls, release]) if answer is not None]
        busy = [answer for answer in answers if answer.status_code == 503]
        assert sorted(answer.status_code for answer in answers) == [200] * 8 + [503] * 22
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in busy)
        assert all("try again" in answer.json()["error"] for answer in busy)
        assert eventually(lambda: metric(client, INSIDE) == 0)
        assert score(client, GOOD).status_code == 200
        assert client.get("/v1/monitor").json()["images"] == 9  # those that were answered, and no other


def test_a_request_is_taken_on_as_a_whole_or_not_at_all(waiting: OODDetector) -> None:
    with running({"d": waiting}, queue=4, max_images=4) as client:
        LET_THROUGH.clear()

        def release() -> None:
            assert eventually(lambda: metric(client, INSIDE) == 2)
            three = client.post("/v1/score", json={"images": [base64.b64encode(GOOD).decode()] * 3})
            assert three.status_code == 503
            assert metric(client, INSIDE) == 2
            LET_THROUGH.set()

        first, second, _ = together([lambda: score(client, GOOD), lambda: score(client, GOOD), release])
        assert first.status_code == second.status_code == 200


def test_late_answers_are_given_up_and_their_places_come_back(waiting: OODDetector) -> None:
    with running({"d": waiting}, deadline_s=0.5, queue=4, max_images=4, max_batch=1) as client:
        LET_THROUGH.clear()
        answers = together([lambda: score(client, GOOD)] * 4)
        assert [answer.status_code for answer in answers] == [504] * 4
        assert metric(client, INSIDE) == 4  # the work itself is still there, so no more is taken on
        assert score(client, GOOD).status_code == 503
        LET_THROUGH.set()
        assert eventually(lambda: metric(client, INSIDE) == 0)
        assert score(client, GOOD).status_code == 200
        assert metric(client, "adascale_held_bytes") == 0


def test_the_bytes_of_all_requests_are_counted(waiting: OODDetector) -> None:
    large = GOOD + bytes(300_000)  # what follows a PNG does not matter
    with running({"d": waiting}, max_body_mb=0.5, max_memory_mb=0.5, decoders=1) as client:
        assert client.base_url.port is not None
        head = f"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: {len(large)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as line:
            line.sendall(head + large[:-10])
            assert eventually(lambda: metric(client, "adascale_held_bytes") >= 250_000)
            assert score(client, large).status_code == 503
            line.sendall(large[-10:])
            assert b"200 OK" in line.recv(4096)
        assert eventually(lambda: metric(client, "adascale_held_bytes") == 0)
        assert score(client, large).status_code == 200


TIGHT: dict[str, Any] = {"max_body_mb": 1, "max_pixels": 100_000, "max_images": 4, "deadline_s": 4.0, "header_s": 0.5}


@pytest.fixture(scope="module")
def small(waiting: OODDetector) -> Iterator[httpx.Client]:
    """A service with tight limits."""
    with running({"d": waiting}, **TIGHT) as client:
        yield client


@pytest.mark.parametrize(("width", "height"), [(60_000, 60_000), (1_000_000, 1), (400, 300), (2**31 - 1, 2**31 - 1)])
def test_images_with_too_many_pixels_are_not_decoded(small: httpx.Client, width: int, height: int) -> None:
    before = psutil.Process().memory_info().rss
    answer = score(small, bomb(width, height))
    assert answer.status_code == 422
    assert psutil.Process().memory_info().rss < before + 100 * 2**20


def test_large_bodies_are_refused_whatever_they_say(small: httpx.Client) -> None:
    large = bytes(2 * 2**20)
    assert score(small, large).status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(32):
            yield bytes(2**16)

    unknown = small.post("/v1/score", content=chunks())  # without a length
    assert unknown.status_code == 413
    assert small.post("/v2/models/d/infer", content=large).status_code == 413
    assert small.post("/v1/score", json={"images": ["aaaa"] * 400_000}).status_code == 413


def test_too_many_images(small: httpx.Client) -> None:
    assert small.post("/v1/score", json={"images": [base64.b64encode(GOOD).decode()] * 5}).status_code == 413
    assert small.post("/v1/score", files=[("a", ("a.png", GOOD))] * 5).status_code == 413
    assert small.post("/v1/score", files=[("a", ("a.png", GOOD))] * 4).status_code == 200


def test_slow_clients_are_told_so(small: httpx.Client) -> None:
    part = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"
    answers = together([lambda: talk(small, part), lambda: talk(small, b"POST /v1/sc"), lambda: talk(small, b"")])
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"error"' in answer


def test_idle_connections_outlast_those_of_clients_and_give_way_to_new_ones(waiting: OODDetector) -> None:
    """httpx lets go of an idle connection after 5 s, load balancers after 60."""
    assert Limits().keep_alive_s > 60
    with running({"d": waiting}, connections=3) as client, ExitStack() as stack:  # the client's is one of them
        lines = [HTTPConnection("127.0.0.1", client.base_url.port, timeout=20) for _ in range(4)]
        for line in lines:
            stack.callback(line.close)
            line.request("GET", "/v2/health/live")
            assert b"true" in line.getresponse().read()
        assert [_is_open(line.sock) for line in lines] == [False, True, True, True]


def _is_open(line: socket.socket) -> bool:
    """Whether the other side has not closed it within half a second."""
    line.settimeout(0.5)
    try:
        return line.recv(1) != b""
    except TimeoutError:
        return True


def test_a_long_header_is_refused(small: httpx.Client) -> None:
    answer = talk(small, b"GET /v1/detectors HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


def test_a_program_is_never_started_for_an_image(small: httpx.Client) -> None:
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(x) print\n%%EOF\n"
    answer = score(small, eps)
    assert answer.status_code == 422
    assert "not an image" in answer.json()["error"]


def test_one_bad_image_does_not_spoil_a_batch_of_others(waiting: OODDetector) -> None:
    """Inputs that the network refuses fail alone."""
    free = OODDetector(waiting.classifier.model, "mls", preprocess=Preprocess(16, None, (0.5,) * 3, (0.25,) * 3))
    free.fit(np.random.default_rng(0).integers(0, 256, (40, 24, 24, 3), dtype=np.uint8))
    with running({"d": free}) as client:
        sizes = [(16, 16), (16, 40), (40, 16), (16, 16)]
        files = [("a", (f"{w}.png", png(width=w, height=h))) for w, h in sizes]
        rows = client.post("/v1/score", files=files).json()
        assert [row["error"] is None for row in rows] == [True, False, False, True]
        assert "calibrated" in rows[1]["error"]


def survives(client: httpx.Client, count: int, slow_ones: int) -> None:
    """Send so many hostile requests, some at a time: each gets a 4xx, and then all is as before."""
    waiting = [slow(seed) for seed in range(slow_ones)]
    for start in range(0, count, 48):
        calls = [*(hostile(seed) for seed in range(start, min(start + 48, count))), *waiting]
        answers = together([lambda call=call: call(client) for call in calls])
        wrong = {start + i: status for i, status in enumerate(answers) if not 400 <= status < 500}
        assert wrong == {}
        waiting = []
    assert eventually(lambda: metric(client, "adascale_held_bytes") == 0 and metric(client, INSIDE) == 0)
    wait_until_ready(client)
    assert score(client, GOOD).status_code == 200


def test_hostile_requests(small: httpx.Client) -> None:
    survives(small, 48, slow_ones=9)


@pytest.mark.slow
def test_a_thousand_hostile_requests(waiting: OODDetector) -> None:
    with running({"d": waiting}, **{**TIGHT, "deadline_s": 20.0, "header_s": 10.0}) as client:
        survives(client, 96, slow_ones=0)
        before = psutil.Process().memory_info().rss
        survives(client, 950, slow_ones=50)
        assert psutil.Process().memory_info().rss < 1.1 * before


@pytest.mark.slow
def test_bodies_of_100_megabytes(small: httpx.Client) -> None:
    before = psutil.Process().memory_info().rss

    def chunks() -> Iterator[bytes]:
        for _ in range(1600):
            yield bytes(2**16)

    declared = {"Content-Length": str(1600 * 2**16)}
    calls: list[Any] = [lambda: small.post("/v1/score", content=chunks(), headers=declared)]
    calls += [lambda: small.post("/v1/score", content=chunks())]
    assert [answer.status_code for answer in together(calls)] == [413, 413]
    assert psutil.Process().memory_info().rss < before + 50 * 2**20


@pytest.mark.parametrize(
    "given", [{"max_batch": 0}, {"max_images": 300}, {"deadline_s": 0}, {"max_body_mb": 512}, {"max_wait_ms": -1}]
)
def test_limits_that_make_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(given))):
        Limits(**given)


def test_nothing_of_an_image_is_logged(
    waiting: OODDetector, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # so that it is restored
    start_logs()
    file = io.BytesIO()
    Image.new("RGB", (20, 20)).save(file, "PPM")
    secret = b"a secret in the picture"
    with running({"d": waiting}) as client:
        score(client, file.getvalue() + secret)
        score(client, secret)
        client.post("/v1/score", content=secret, headers={"Content-Type": "multipart/form-data; boundary=B"})
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    told = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in told if line["path"] == "/v1/score"] == [200, 422, 422]
    assert all(line["request_id"] and line["ms"] > 0 for line in told)
    assert "secret" not in json.dumps(lines)
