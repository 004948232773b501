"""Answers over HTTP are those of the detector, in every form that a request may have."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from adascale import OODDetector
from tests.service.serving import detector, metric, png, running, score, together

DATA = [png(seed) for seed in range(100, 106)]


def agrees(rows: list[dict[str, Any]], fitted: OODDetector, data: list[bytes]) -> bool:
    """Whether the rows say what the detector says, but for the rounding of batches of other sizes."""
    verdict = fitted(data)
    assert [row["prediction"] for row in rows] == verdict.prediction.tolist()
    assert [row["class"] for row in rows] == verdict.label
    assert [row["is_ood"] for row in rows] == verdict.is_ood.tolist()
    scores = torch.tensor([row["score"] for row in rows], dtype=torch.float64)
    return torch.allclose(scores, verdict.score, rtol=1e-4) and all(row["error"] is None for row in rows)


def form(data: list[bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("images", (f"{i}.png", one)) for i, one in enumerate(data)]


def test_a_raw_image(client: httpx.Client, fitted: OODDetector) -> None:
    rows = [score(client, one).json() for one in DATA]
    assert all(len(row) == 1 for row in rows)
    assert agrees([row[0] for row in rows], fitted, DATA)
    assert set(rows[0][0]) == set("id name prediction class score p_value is_ood early error".split())
    assert rows[0][0]["early"] is None


def test_a_form_of_images(client: httpx.Client, fitted: OODDetector) -> None:
    rows = client.post("/v1/score", files=form(DATA), data={"note": "a field that is no image"}).json()
    assert agrees(rows, fitted, DATA)
    assert [row["name"] for row in rows] == [f"{i}.png" for i in range(len(DATA))]


def test_json_with_base64(client: httpx.Client, fitted: OODDetector) -> None:
    texts = [base64.b64encode(one).decode() for one in DATA]
    texts[0] = f"data:image/png;base64,{texts[0]}"
    assert agrees(client.post("/v1/score", json={"images": texts}).json(), fitted, DATA)


def test_requests_at_the_same_time_share_passes_and_keep_their_answers(
    client: httpx.Client, fitted: OODDetector
) -> None:
    many = [png(seed) for seed in range(200, 224)]
    before, passes = (metric(client, f'adascale_batch_images_{name}{{detector="first"}}') for name in ("sum", "count"))
    rows = together([lambda one=one: score(client, one).json()[0] for one in many])
    assert agrees(rows, fitted, many)
    assert metric(client, 'adascale_batch_images_sum{detector="first"}') == before + 24
    assert metric(client, 'adascale_batch_images_count{detector="first"}') < passes + 24


def test_decisions(client: httpx.Client, fitted: OODDetector) -> None:
    rows = client.post("/v1/decide", files=form(DATA)).json()
    decision = fitted.decide(DATA)
    assert [row["is_ood"] for row in rows] == decision.is_ood.tolist()
    assert all(isinstance(row["early"], bool) for row in rows)
    assert {row["score"] for row in rows} == {row["p_value"] for row in rows} == {None}


def test_explanations(client: httpx.Client, fitted: OODDetector) -> None:
    (row,) = score(client, DATA[0], "/v1/score?explain=true").json()
    verdict = fitted(DATA[0])
    assert row["probability"] == pytest.approx(float(verdict.logits.softmax(1).max()), rel=1e-4)
    assert sum(row["evidence"].values()) == pytest.approx(row["score"])
    assert isinstance(row["explanation"], dict)


def test_an_unreadable_image_has_its_reason_and_spares_the_others(client: httpx.Client, fitted: OODDetector) -> None:
    answer = client.post("/v1/score", files=form([DATA[0], b"no image", DATA[1]]))
    assert answer.status_code == 200
    first, broken, second = answer.json()
    assert agrees([first, second], fitted, DATA[:2])
    assert "not an image" in broken["error"]
    assert {broken[name] for name in ("prediction", "class", "score", "p_value", "is_ood", "early")} == {None}


@pytest.mark.parametrize("data", [b"no image", b"", DATA[0][:200]])
def test_a_single_unreadable_image_is_the_fault_of_the_request(client: httpx.Client, data: bytes) -> None:
    answer = score(client, data)
    assert answer.status_code == 422
    assert list(answer.json()) == ["error"]
    assert "\n" not in answer.json()["error"]


def test_detectors_by_name(client: httpx.Client, fitted: OODDetector) -> None:
    first, second = client.get("/v1/detectors").json()
    assert (first["name"], second["name"]) == ("first", "second")
    assert (first["method"], second["method"]) == ("combined", "mls")
    assert first["guarantee"] == fitted.guarantee
    assert first["threshold"] == fitted.threshold
    assert first["classes"] == list("abcde")
    assert first["input"]["shape"] == [3, 16, 16]
    histogram = first["calibration"]
    assert fitted.calibration is not None
    assert sum(histogram["counts"]) == histogram["n"] == len(fitted.calibration.scores)
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1
    one, other = (score(client, DATA[0], f"/v1/score?detector={name}").json()[0] for name in ("first", "second"))
    assert one["score"] != other["score"]
    assert score(client, DATA[0]).json()[0]["score"] == pytest.approx(one["score"])
    missing = score(client, DATA[0], "/v1/score?detector=third")
    assert missing.status_code == 404
    assert "first, second" in missing.json()["error"]


def test_the_last_verdicts_and_what_people_say_about_them(client: httpx.Client, state: Path) -> None:
    rows = [score(client, data).json()[0] for data in DATA[:3]]  # images of one request may be judged in any order
    recent = client.get("/v1/recent?limit=2").json()
    assert [one["id"] for one in recent] == [rows[2]["id"], rows[1]["id"]]
    assert recent[0]["score"] == rows[2]["score"]

    def say(id: str, label: str) -> httpx.Response:
        return client.post("/v1/feedback", json={"id": id, "label": label})

    assert say(rows[0]["id"], "known").json()["counts"] == {"known": 1, "unknown": 0}
    assert say(rows[1]["id"], "unknown").json()["counts"] == {"known": 1, "unknown": 1}
    assert say(rows[1]["id"], "unknown").json()["counts"] == {"known": 1, "unknown": 1}  # said twice
    assert say(rows[1]["id"], "known").json()["counts"] == {"known": 2, "unknown": 0}  # a change of mind
    assert say("nobody", "known").status_code == 404
    assert say(rows[0]["id"], "perhaps").status_code == 422
    lines = [json.loads(line) for line in (state / "first" / "feedback.jsonl").read_text().splitlines()]
    assert [(line["id"], line["label"]) for line in lines] == [
        (rows[0]["id"], "known"),
        (rows[1]["id"], "unknown"),
        (rows[1]["id"], "known"),
    ]
    assert lines[0]["score"] == rows[0]["score"]


def test_only_so_many_verdicts_are_remembered(fitted: OODDetector) -> None:
    with running({"d": fitted}, remember=3) as small:
        rows = [score(small, data).json()[0] for data in DATA]
        assert len(small.get("/v1/recent?limit=1000").json()) == 3
        assert small.post("/v1/feedback", json={"id": rows[0]["id"], "label": "known"}).status_code == 404
        assert small.post("/v1/feedback", json={"id": rows[-1]["id"], "label": "known"}).status_code == 200


def test_the_monitor_sees_what_is_scored(client: httpx.Client) -> None:
    before = client.get("/v1/monitor?detector=second").json()
    score(client, DATA[0], "/v1/score?detector=second")
    score(client, DATA[1], "/v1/decide?detector=second")  # without a score
    after = client.get("/v1/monitor?detector=second").json()
    assert after["images"] == before["images"] + 1
    assert after["images_seen"] == before["images_seen"] + 2
    assert after["flag_rate"] == after["flagged"] / after["images_seen"]
    assert metric(client, 'adascale_monitor_alarm{alarm="unusual",detector="second",kind="ever"}') == 0


def test_an_alarm_is_raised_when_everything_is_strange(tmp_path: Path) -> None:
    with running({"d": detector("mls")}, tmp_path) as client:
        white = png(width=8, height=8)
        for _ in range(3):
            client.post("/v1/score", files=form([white] * 40))
        found = client.get("/v1/monitor").json()
        assert found["alarm"]
        assert metric(client, 'adascale_monitor_alarm{alarm="repeated",detector="d",kind="ever"}') == 1


def test_metrics(client: httpx.Client) -> None:
    def counted(line: str) -> float:
        return metric(client, line)

    ok, bad = (f'adascale_requests_total{{endpoint="/v1/score",status="{code}"}}' for code in (200, 422))
    images, unreadable = (
        'adascale_images_total{detector="first"}',
        'adascale_errors_total{detector="first",reason="unreadable"}',
    )
    before = [counted(line) for line in (ok, bad, images, unreadable)]
    score(client, DATA[0])
    score(client, b"no image")
    assert [counted(line) for line in (ok, bad, images, unreadable)] == [value + 1 for value in before]
    assert counted('adascale_queue_images{detector="first"}') == 0
    assert counted("adascale_held_bytes") == 0
    assert counted('adascale_requests_total{endpoint="other",status="404"}') <= 1


def test_a_token_is_needed_where_one_is_set(fitted: OODDetector) -> None:
    with running({"d": fitted}, token="a long secret text") as client:
        for path in ("/v1/detectors", "/v1/recent", "/v2", "/v2/models/d", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401, path
            for wrong in ("Bearer a long secret tex", "Basic a long secret text", "a long secret text", ""):
                assert client.get(path, headers={"Authorization": wrong}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer a long secret text"}).status_code == 200
        assert score(client, DATA[0]).status_code == 401
        assert client.get("/v2/health/live").status_code == client.get("/v2/health/ready").status_code == 200


def test_pages_of_other_sites_may_not_send_images(client: httpx.Client) -> None:
    answer = client.post("/v1/score", content=DATA[0], headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


@pytest.mark.parametrize("path", ["/", "/v1/detectors", "/nowhere"])
def test_no_answer_may_be_framed_or_taken_for_something_else(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")


def test_a_request_has_an_id(client: httpx.Client) -> None:
    assert client.get("/v2", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    strange = client.get("/v2", headers={"X-Request-ID": "a b\tc"}).headers["x-request-id"]
    assert strange != client.get("/v2").headers["x-request-id"]
    assert len(strange) == 16


def test_the_network_of_the_caller_is_not_used(fitted: OODDetector) -> None:
    model = detector("mls")
    expected = float(model(DATA[0]).score)
    with running({"d": model}) as client, torch.no_grad():
        for parameter in model.classifier.model.parameters():
            parameter.zero_()
        assert score(client, DATA[0]).json()[0]["score"] == pytest.approx(expected, rel=1e-5)
