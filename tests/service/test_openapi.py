"""The service keeps what its OpenAPI document says, whatever is generated from it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

schemathesis = pytest.importorskip("schemathesis")
_FEW = settings(
    max_examples=4,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.filterwarnings("ignore")  # those of schemathesis
def test_what_the_document_says_holds(client: httpx.Client) -> None:
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.checks.status_code_conformance,
        schemathesis.checks.content_type_conformance,
        schemathesis.checks.response_schema_conformance,
    ]
    document, paths = client.get("/openapi.json").json(), set()
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = found.ok()
        paths.add(operation.path)

        def check(case: Any) -> None:
            case.call_and_validate(base_url=str(client.base_url), checks=checks, timeout=30)

        _FEW(given(case=operation.as_strategy())(check))()
    assert {"/v1/score", "/v1/decide", "/v1/feedback", "/v2/models/{name}/infer", "/metrics"} <= paths


def test_examples_are_in_the_document_and_work(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    example = document["paths"]["/v1/score"]["post"]["requestBody"]["content"]["application/json"]["example"]
    (row,) = client.post("/v1/score", json=example).json()
    assert row["error"] is None
    infer = document["paths"]["/v2/models/{name}/infer"]["post"]["requestBody"]["content"]["application/json"]
    assert client.post("/v2/models/first/infer", json=infer["example"]).status_code == 200
