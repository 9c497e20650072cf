# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node asks a registry, how its answer is judged, and the credentials, which the controller alone tries."""

from __future__ import annotations

import typing as t
import urllib.parse

from ....module_utils._model.binding import Binding
from ....module_utils._model.errors import ApiError, InputError, RefusedError, TransportError
from .client import ImageName, Registry, RegistryAccess

Wrong = tuple[str, str]


def build_request(binding: Binding) -> dict[str, t.Any]:
    """Return what a node asks: the API, and whether the token service that it names can be reached, too."""
    return {"url": f"{binding.endpoint}/v2/", "method": "GET", "ca": binding.ca, "follow_realm": True}


def judge(binding: Binding, answer: t.Mapping[str, t.Any]) -> Wrong | None:
    """Return what is wrong with an answer of a server and how to mend it, None for the answer of a registry."""
    status, headers, text = int(answer["status"]), answer.get("headers") or {}, str(answer["text"])
    if status == 429:
        wait = headers.get("retry-after", "")
        late = f", again after {wait} s" if wait else ""
        return f"answers 429: its rate limit is used up{late}", "Wait, or pull through a mirror of your own (hosts)"
    if status == 400 and "HTTPS" in text:
        host = urllib.parse.urlsplit(binding.endpoint).netloc
        return "speaks HTTPS, and its endpoint says http", f"Write endpoint: https://{host}"
    if "html" in str(answer["kind"]) or text.lstrip()[:1] == "<":
        fix = "Check the endpoint: a web page answers there, of a proxy or a login"
        return f"answers {status} with a web page, not as a registry", fix
    if status == 401:
        scheme = headers.get("www-authenticate", "").partition(" ")[0].lower()
        if scheme == "basic" or (scheme == "bearer" and "realm=" in headers["www-authenticate"]):
            return None
        fix = "Check the endpoint, and the proxy before it: a registry answers with Bearer and a realm, or with Basic"
        return "answers 401 and does not say how to log in (WWW-Authenticate)", fix
    return None if status == 200 else (f"answers {status}, not as a registry", "Check the endpoint")


def check_access(binding: Binding, access: RegistryAccess, option: str) -> str:
    """Refuse credentials that the registry does not take; return why they could not be tried, empty where they were.

    Each repository of the binding is asked for its tags: one that does not exist yet is made by the first push.

    :raises InputError: when it refuses them.
    """
    for repository in [item.ref for item in binding.resources] or [""]:
        registry = Registry(ImageName("", repository, ""), access)
        what = f"repository {repository}" if repository else "the registry"
        try:
            # Without a repository it is the address of the API itself.
            registry.send("GET", "tags/list?n=1" if repository else f"{access.endpoint}/v2/").close()
        except ApiError as exc:
            if exc.status in (401, 403):
                problem = f"{what} at {binding.endpoint} refuses {_name_of(access)} (HTTP {exc.status})"
                fix = "Check the credentials, and what they may do there" if access.password else "Set secret_ref"
                raise InputError(f"{option}.secret_ref", problem, fix) from None
            if exc.status == 429:
                return exc.message
            if exc.status != 404 or not repository:
                raise RefusedError(f"{option}: {exc.message}", exc.fix) from None
        except TransportError as exc:
            return exc.message
    return ""


def _name_of(access: RegistryAccess) -> str:
    return "the credentials" if access.password else "who has no credentials"
