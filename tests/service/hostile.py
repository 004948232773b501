"""Requests that a service must refuse."""

from __future__ import annotations

import base64
import random
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import httpx

from tests.service.serving import png, talk

GOOD = png(1)


def eventually(check: Callable[[], bool], seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while not check() and time.monotonic() < until:
        time.sleep(0.01)
    return check()


def bomb(width: int, height: int) -> bytes:
    """A PNG of very many pixels in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(min(width * height, 2**22)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def hostile(seed: int) -> Callable[[httpx.Client], int]:
    """A request that should get a status from 400 to 499; returns that status."""
    draw = random.Random(seed)
    noise = draw.randbytes(draw.randrange(1, 3000))
    cut, valid = png(seed)[: draw.randrange(1, 900)], base64.b64encode(png(seed)).decode()
    json_ = {"Content-Type": "application/json"}
    form = {"Content-Type": "multipart/form-data; boundary=B"}
    head = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    infer = "/v2/models/d/infer"

    def post(path: str = "/v1/score", **more: Any) -> Callable[[httpx.Client], int]:
        return lambda client: client.post(path, **more).status_code

    def raw(data: bytes) -> Callable[[httpx.Client], int]:
        def call(client: httpx.Client) -> int:
            answer = talk(client, data)
            return int(answer[9:12] or b"0")

        return call

    def tensor(**fields: Any) -> Callable[[httpx.Client], int]:
        return post(
            infer, json={"inputs": [{"name": "images", "datatype": "FP32", "shape": [1], "data": [0], **fields}]}
        )

    deep, nan = b"[" * 100_000, {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": ["a"] * 768}
    kinds = [
        *(post(content=noise), post(content=cut), post(content=bomb(draw.randrange(400, 2**20), 3000))),
        *(post(content=noise, headers=json_), post(content=deep, headers=json_), post(json=[valid]), post(json=None)),
        *(post(json={"images": valid}), post(json={"images": [1, 2]}), post(json={"images": ["*" * 50]})),
        *(post(json={"images": []}), post(json={"images": [valid] * 5}), post(content=b"", headers=form)),
        *(post(content=noise, headers=form), post(content=b"--B\r\nA: b\r\n\r\n" + cut, headers=form)),
        *(post(content=noise, headers={"Content-Type": "multipart/form-data"}), post("/v1/score?detector=%00")),
        *(post(content=GOOD, headers={"Content-Type": "text/html"}), post("/v1/score?explain=perhaps", content=GOOD)),
        *(post(content=GOOD, headers={"Content-Encoding": "gzip"}), post(content=bytes(2**21)), post("/v1/nothing")),
        *(post("/v1/feedback", json={"id": "a" * 70, "label": "known"}), post("/v1/feedback", content=noise)),
        *(post("/v2/models/x/infer", json={}), post(infer, json={}), post(infer, content=noise), post(infer, json=[])),
        post("/v1/feedback", content=bytes(2**21)),
        *(tensor(), tensor(shape=[-1]), tensor(shape=[2**40, 2**40]), tensor(datatype="FP99"), tensor(data="x")),
        *(tensor(name="others"), tensor(name="pixels", datatype="BYTES", data=[valid[:40]]), tensor(shape="1")),
        post(infer, content=b"{}" + noise, headers={"Inference-Header-Content-Length": str(draw.randrange(-9, 9**9))}),
        *(post(infer, json={"inputs": [nan]}), tensor(parameters={"binary_data_size": 10**12})),
        *(raw(noise + b"\r\n\r\n"), raw(head + b"Content-Length: -4\r\n\r\n")),
        *(raw(b"GET  HTTP/1.1\r\n\r\n"), raw(head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n")),
        raw(head + b"Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ]
    return kinds[seed % len(kinds)]


def slow(seed: int) -> Callable[[httpx.Client], int]:
    """A client that never completes its request."""
    parts = (b"POST /v1/score HTT", b"%sContent-Length: 9\r\n\r\nab", b"%sTransfer-Encoding: chunked\r\n\r\n5\r\nab")
    heads = (b"POST /v1/%s HTTP/1.1\r\nHost: x\r\n" % name for name in (b"score", b"decide", b"feedback"))
    sent = [part.replace(b"%s", head) for head in heads for part in parts]
    return lambda client: int(talk(client, sent[seed % len(sent)], 60)[9:12] or b"0")
