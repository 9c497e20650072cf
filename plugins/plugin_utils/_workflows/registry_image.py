# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image into a registry that is bound: from an archive of the controller, or by digest from another registry."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import typing as t

from ...module_utils._model.errors import InputError
from ...module_utils._model.image_name import full_name
from ...module_utils._model.service_registry import hosts_of, is_repository
from .._services.registry import push
from .._services.registry.client import ImageName, Registry
from .._services.registry.image_source import ArchiveSource, ImageSource, RegistrySource
from .shared import bindings, credentials
from .shared.kube_connection import open_client
from .shared.request import RunRequest
from .shared.state_dir import StateHome

Result = dict[str, t.Any]


def run(request: RunRequest) -> Result:
    """Bring the image into the registry and return the module's result.

    :raises InputError: when the registry of the name is not bound, or the options exclude each other.
    """
    options = request.options
    name = ImageName.from_text(full_name(str(options["name"])))
    if not is_repository(name.repository) or name.reference.startswith("sha256:"):
        fix = "Write HOST/REPOSITORY:TAG in lower-case letters"
        raise InputError("name", f"'{options['name']}' is not the name of an image that can be pushed", fix)
    target = _open_registry(request, name, "name")
    if target is None:
        fix = "Bind it in muster_services (kind: registry) and run the services playbook"
        raise InputError("name", f"the registry {name.registry} is not bound", fix)
    with _open_source(request, str(options["name"])) as source:
        plan = push.plan_push(source)
        before = push.find_digest(target)
        found: Result = {"changed": before != plan.digest, "digest": plan.digest, "uploaded": []}
        if found["changed"] and not request.check:
            found["uploaded"] = push.push(target, source, plan, request.progress.say)
    return {**found, "image": name.at(plan.digest), "bytes": sum(plan.blobs[item] for item in found["uploaded"])}


@contextlib.contextmanager
def _open_source(request: RunRequest, name: str) -> t.Iterator[ImageSource]:
    archive, other = request.options.get("archive"), request.options.get("source")
    if bool(archive) == bool(other):
        raise InputError("archive", "one of archive and source is required", "Name an archive, or an image to copy")
    if other:
        image = ImageName.from_text(full_name(str(other)))
        yield RegistrySource(_open_registry(request, image, "source") or Registry(image))
        return
    place = pathlib.Path(request.base, pathlib.Path(str(archive)).expanduser())
    if not place.exists():
        raise InputError("archive", f"{place} does not exist", "Write it with docker save or podman save")
    with ArchiveSource(place, full_name(name)) as source:
        yield source


def _open_registry(request: RunRequest, name: ImageName, option: str) -> Registry | None:
    """Return the repository of an image in a bound registry, None where no binding leads there."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    known = [item for item in bindings.list_bindings(home) if item.component == "registry"]
    found = [item for item in known if name.registry in hosts_of(item)]
    if not found:
        return None
    open_cluster = functools.partial(open_client, request.options, request.base, request.progress.say)
    return Registry(name, credentials.open_registry(found[0], option, open_cluster))
