# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of monitoring as they are deployed, on loopback: their files, the real programs, what a controller keeps."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import ssl
import subprocess
import time
import typing as t
import urllib.error
import urllib.request

from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    TLS_CERTIFICATE,
    TLS_KEY,
    Component,
    Site,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import component as prometheus
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tests.support.prometheus_program import find

SERVICE: dict[str, t.Any] = {"name": "own", "kind": "monitoring", "mode": "deploy", "deploy": {"host": "a"}}


def site(root: pathlib.Path, **more: t.Any) -> Site:
    """Return where a service runs, with its folders."""
    port = free_port()
    for name in ("data", "files"):
        (root / name).mkdir(parents=True, exist_ok=True)
    more.setdefault("endpoint", f"https://127.0.0.1:{port}")
    return Site("own", listen="127.0.0.1", port=port, data=str(root / "data"), files=str(root / "files"), **more)


def make(place: Site, component: Component = prometheus.COMPONENT) -> dict[str, str]:
    """Write the files of the service as its host gets them; return its credentials."""
    pair = own_certificate.make("own", ["127.0.0.1"], [])
    texts = zip((TLS_KEY, TLS_CERTIFICATE), pair, strict=True)
    made = {**component.make_credentials(), **{name: base64.b64encode(text.encode()).decode() for name, text in texts}}
    for name, text in component.write_files(place, made).items():
        pathlib.Path(place.files, name).write_text(text)
    return made


@contextlib.contextmanager
def serving(place: Site, ca: str, component: Component = prometheus.COMPONENT) -> t.Iterator[None]:
    """Have the program of a service run."""
    log = pathlib.Path(place.data).with_name(f"{component.provider}.log")
    with log.open("wb") as out:
        process = subprocess.Popen([find(component.member), *component.command(place)], stdout=out, stderr=out)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(urllib.error.URLError, TimeoutError):
                ask(place, ca, "/-/ready")
                break
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def ask(place: Site, ca: str, path: str, user: str = "") -> tuple[int, str]:
    """Return status and text of an answer."""
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if user else {}
    request = urllib.request.Request(f"{place.endpoint}{path}", headers=headers)
    context = ssl.create_default_context(cadata=ca)
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return int(error.code), ""


def keep(home: StateHome, name: str, component: Component, place: Site, made: dict[str, str]) -> str:
    """Keep what a deployment leaves on the controller; return the certificate of the service."""
    deployed.write_credentials(home, name, made)
    about = {"kind": "monitoring", "provider": component.provider, "endpoint": place.endpoint, "place": {}}
    deployed.write_deployed(home, name, {**about, "backend": "hosts"})
    return base64.b64decode(made[TLS_CERTIFICATE]).decode()


def wait_until(is_so: t.Callable[[], bool], limit_s: float) -> bool:
    """Wait until something is so; return whether it is."""
    end = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
