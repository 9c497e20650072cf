# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry of images as a service: what its entry may hold, and which registry an image is pulled from."""

from __future__ import annotations

import re
import typing as t
import urllib.parse

from .errors import InputError

if t.TYPE_CHECKING:
    from .binding import Binding
    from .service import Service

_HOST = re.compile(r"(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+|[a-z0-9-]+(?=:))(?::[0-9]{1,5})?\Z")
# OCI Distribution Specification 1.1, "Pulling manifests": what a repository may be called.
_PART: t.Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*\Z")
# Images of Docker Hub have its name; its API answers elsewhere.
_HUB: t.Final = "registry-1.docker.io"


def check_registry(service: Service, where: str) -> None:
    """Refuse an entry of a registry that no program could pull from.

    :raises InputError: naming the key.
    """
    if urllib.parse.urlsplit(service.address).path.strip("/"):
        fix = "Leave the path out; repositories go to resources"
        raise InputError(f"{where}.endpoint", "has a path: registries answer below /v2/ of their host", fix)
    for host in service.hosts:
        if not _HOST.match(host):
            fix = "Write HOST:PORT, or a name with a dot, as in the names of images"
            raise InputError(f"{where}.hosts", f"'{host}' is not the name of a registry", fix)
    for item in service.resources:
        if not is_repository(item.ref):
            fix = "Names are lower-case, with '/', '.', '_' and '-' inside, without host and tag"
            raise InputError(f"{where}.resources.ref", f"'{item.ref}' is not the name of a repository", fix)
    for key in ("region", "env"):
        if getattr(service, key):
            raise InputError(f"{where}.{key}", "has no effect for a registry", "Leave it out")


def is_repository(name: str) -> bool:
    """Return whether a registry can have a repository of this name."""
    return len(name) <= 255 and bool(_REPOSITORY.match(name))


def hosts_of(binding: Binding) -> tuple[str, ...]:
    """Return the names of registries that lead to this one in names of images."""
    own = urllib.parse.urlsplit(binding.endpoint).netloc
    return tuple(dict.fromkeys((*binding.hosts, "docker.io" if own == _HUB else own)))
