# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list calls of all providers on loopback, answered from ``tests/fixtures/listings``.

Requests and answers are checked against the provider's document where there is one; leaving the ``with`` block
raises for everything that the document does not allow.
"""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t
import urllib.parse
from collections.abc import Mapping

from ansible_collections.muster.training.tests.fakes.spec import Spec, spec

from .loopback import Api

FOLDER = pathlib.Path(__file__).parents[1] / "fixtures" / "listings"
CANARY = "CANARY-"
PAGE = 25

Reply = tuple[int, t.Any, Mapping[str, str]]
Pairs = list[tuple[str, str]]


def listing(name: str) -> t.Any:
    """Return one recorded listing, decoded anew."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


class ListApi(Api):
    """Serves one provider's list calls below ``url`` (see :data:`URLS` for the ``api_url`` that fits).

    ``answers`` maps "GET /path" to the data that is answered; ``credential`` is the header that must come with it;
    ``failure`` is answered instead of everything while it is set.
    """

    def __init__(
        self,
        document: Spec | None,
        answers: Mapping[str, t.Any],
        credential: tuple[str, str] = ("authorization", "Bearer "),
    ) -> None:
        self.problems: list[str] = []
        self.failure: Reply | None = None
        self._document = document
        self._credential = credential
        super().__init__({call: self._route(call, data) for call, data in answers.items()})

    def _route(self, call: str, data: t.Any) -> t.Callable[[Pairs, dict[str, str], bytes], Reply]:
        method, _space, path = call.partition(" ")

        def answer(query: Pairs, headers: dict[str, str], body: bytes) -> Reply:
            target = path + ("?" + urllib.parse.urlencode(query) if query else "")
            name, prefix = self._credential
            if not headers.get(name, "").startswith(prefix):
                return 401, {"message": "no credential"}, {}
            if not headers.get("user-agent", "").startswith("muster.training/"):
                return 403, b"error code: 1010", {}
            if self.failure is not None:
                return self.failure
            shown = data(query) if callable(data) else data
            if self._document is not None:
                self.problems += self._document.check_request(method, target, body)
                self.problems += self._document.check_answer(method, target, 200, shown)
            return 200, shown, {}

        return answer

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        assert not self.problems, self.problems


def vast_pages(instances: list[t.Any]) -> t.Callable[[Pairs], t.Any]:
    """Return Vast.ai's pages of ``instances``: at most 25, with the token of the next."""

    def answer(query: Pairs) -> t.Any:
        given = dict(query)
        start = int(base64.b64decode(given["after_token"])) if "after_token" in given else 0
        size = min(int(given.get("limit", PAGE)), PAGE)
        token = base64.b64encode(str(start + size).encode()).decode() if start + size < len(instances) else None
        shown = instances[start : start + size]
        return {"success": True, "instances": shown, "instances_found": len(shown), "next_token": token}

    return answer


def lambda_api() -> ListApi:
    return ListApi(spec("lambda"), {"GET /api/v1/instances": listing("lambda")})


def runpod_api() -> ListApi:
    recorded = listing("runpod")
    return ListApi(spec("runpod"), {"GET /v2/pods": recorded["pods"], "GET /v2/clusters": recorded["clusters"]})


def vastai_api() -> ListApi:
    return ListApi(spec("vastai"), {"GET /api/v1/instances/": vast_pages(listing("vastai"))})


def shadeform_api() -> ListApi:
    recorded = listing("shadeform")
    answers = {"GET /v1/instances": recorded["instances"], "GET /v1/clusters": recorded["clusters"]}
    return ListApi(spec("shadeform", "/v1"), answers, ("x-api-key", ""))


def tailscale_api() -> ListApi:
    return ListApi(spec("tailscale", "/api/v2"), {"GET /api/v2/tailnet/-/devices": listing("tailscale")})


def headscale_api() -> ListApi:
    return ListApi(None, {"GET /api/v1/node": listing("headscale_v1")})


def coreweave_api() -> ListApi:
    return ListApi(None, {"GET /v1beta1/cks/clusters": listing("coreweave")["clusters"]})


# Plugin: the fake, the end of its file's name, and what to add to the server's address.
APIS: dict[str, tuple[t.Callable[[], ListApi], str, str]] = {
    "lambda_cloud": (lambda_api, "lambda.yml", "/api/v1"),
    "runpod": (runpod_api, "runpod.yml", "/v2"),
    "vastai": (vastai_api, "vast.yml", "/api"),
    "shadeform": (shadeform_api, "shadeform.yml", "/v1"),
    "tailscale": (tailscale_api, "tailscale.yml", ""),
    "coreweave": (coreweave_api, "coreweave.yml", "/v1beta1"),
}


def endings() -> dict[str, tuple[str, str]]:
    """Return the end of each plugin's file name and the path of its API."""
    return {name: (ending, path) for name, (_make, ending, path) in APIS.items()}
