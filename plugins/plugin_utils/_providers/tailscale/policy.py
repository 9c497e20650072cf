# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read, validate and replace the tailnet's policy in its author's own format (HuJSON, with comments)."""

from __future__ import annotations

from ....module_utils._http.messages import HttpRequest
from ....module_utils._model.errors import ApiError, RefusedError
from ..parsing import as_mapping, join_texts, objects, texts, unexpected_answer
from .client import NAME, TailscaleClient

_HUJSON = "application/hujson"
_CHANGED = 412


class PolicyApi:
    """The policy of the tailnet that a client is for. JSON would lose the comments, so its own format is used."""

    def __init__(self, client: TailscaleClient) -> None:
        self._http = client.http
        self._path = f"/tailnet/{client.tailnet}/acl"

    def get(self) -> tuple[str, str]:
        """Return the policy's text and its version (the ETag that :meth:`put` wants)."""
        response = self._http.send(HttpRequest("GET", self._path, headers={"Accept": _HUJSON}))
        etag = response.headers.get("etag", "")
        try:
            text = response.body.decode("utf-8")
        except UnicodeDecodeError:
            raise unexpected_answer(NAME, "a policy that is not UTF-8") from None
        if not etag:
            raise unexpected_answer(NAME, "a policy without version")
        return text, etag

    def validate(self, text: str) -> None:
        """Raise RefusedError with the server's message when it does not accept the policy."""
        headers = {"Accept": "application/json", "Content-Type": _HUJSON}
        request = HttpRequest("POST", f"{self._path}/validate", headers=headers, body=text.encode(), idempotent=True)
        answer = as_mapping(self._http.call(request).data)
        if answer.get("message"):
            lines = [line for item in objects(answer.get("data")) for line in texts(item.get("errors"))]
            raise RefusedError(f"the policy is not valid: {join_texts(answer['message'], '; '.join(lines))[:300]}")

    def put(self, text: str, etag: str) -> None:
        """Replace the policy of version ``etag``; raise RefusedError when it has changed since it was read."""
        headers = {"Accept": _HUJSON, "Content-Type": _HUJSON, "If-Match": etag}
        try:
            self._http.send(HttpRequest("POST", self._path, headers=headers, body=text.encode(), idempotent=False))
        except ApiError as error:
            if error.status == _CHANGED:
                raise RefusedError(
                    "the policy was changed while this task was running", "Review the new policy, then run again"
                ) from None
            raise
