# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""K3s on this node: what is there, placing its files, starting it, tokens, and taking all of it away again.

A record of what was made is on disk before anything is made, so that a removal after a crash leaves nothing.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import socket
import time
import typing as t

from . import facts_cluster, placed_files
from .commands import read_unit, run
from .facts_source import FactsSource
from .placed_files import Recorder, place_of

NodeRequest = t.Mapping[str, t.Any]
RECORD = "var/lib/muster/k3s.json"
DATA = "var/lib/rancher/k3s"
PROGRAM = "usr/local/bin/k3s"
CONFIG = "etc/rancher/k3s/config.yaml.d/50-muster.yaml"
# Written by the playbook upgrade: a Node that it has closed, and a K3s that it has changed and not proven.
UPGRADE = (f"{DATA}/muster/closed", f"{DATA}/muster/unproven")
# While a server leaves: K3s ends by itself then, and would join again when it is started again.
LEAVES = "run/systemd/system/k3s.service.d/90-muster-leaves.conf"
# What another Kubernetes leaves where this one would be.
FOREIGN = {
    "K3s": (
        "etc/systemd/system/k3s.service",
        "etc/systemd/system/k3s-agent.service",
        "etc/rancher/k3s",
        DATA,
        PROGRAM,
        "usr/local/bin/k3s-uninstall.sh",
    ),
    "RKE2": ("etc/rancher/rke2", "var/lib/rancher/rke2"),
    "kubeadm": ("etc/kubernetes/kubelet.conf", "etc/kubernetes/admin.conf"),
    "MicroK8s": ("var/snap/microk8s",),
    "a kubelet": ("var/lib/kubelet",),
}
# Said again and again by an agent that will never be let in.
_REFUSALS = (
    "token CA hash does not match",
    "invalid token",
    "401 Unauthorized",
    "Node password rejected",
    "certificate signed by unknown authority",
)
# How long a unit that starts by itself may take before it is looked at as it is.
_BOOT_S = 60
# Of a server that joins while etcd still takes in the one before: K3s ends, and systemd starts it again.
_PASSING = ("etcdserver: unhealthy cluster", "etcdserver: too many learner members", "not enough started members")


def answer(request: NodeRequest) -> dict[str, t.Any]:
    """Carry out one ``step`` of a request; ``root`` replaces ``/``, so that a test can look at what would be placed."""
    try:
        return _STEPS[request["step"]](request)
    except PermissionError as exc:
        if os.geteuid() == 0:
            raise
        return {
            "problem": f"is not managed as root, which alone may use {exc.filename}",
            "fix": "Set ansible_become: true",
        }


def _read_state(request: NodeRequest) -> dict[str, t.Any]:
    """Return what is here; reads only.

    On request: ``paths`` (digests of placed files), ``unit``, ``machine`` (a role: what could keep this machine out of
    the cluster), ``facts`` with ``peers``, and ``kubeconfig``, which is a secret.
    """
    root = request.get("root", "/")
    recorder = _recorder(request)
    record = recorder.read()
    is_agent = (record or {}).get("role") == "agent"
    authority = place_of(f"{DATA}/{'agent' if is_agent else 'server/tls'}/server-ca.crt", root)
    found: dict[str, t.Any] = {
        "architecture": os.uname().machine,
        "ability": facts_cluster.read_ability(FactsSource({"root": root})),
        "root": os.geteuid() == 0,
        "hostname": socket.gethostname(),
        "machine_id": _text(place_of("etc/machine-id", root)).strip(),
        "addresses": _addresses(),
        "record": record,
        "foreign": [] if record else _foreign(root),
        "files": {path: recorder.digest_of(path) for path in request.get("paths", [])},
        "joined": place_of(f"{DATA}/agent/client-kubelet.crt", root).exists(),
        "datastore": _find_datastore(root),
        "joins_at": _find_server(root),
        "authority": hashlib.sha256(authority.read_bytes()).hexdigest() if authority.exists() else None,
        "driver": facts_cluster.read_driver(FactsSource({"root": root})),
        "unit": _read_settled(request["unit"]) if request.get("unit") else None,
    }
    if request.get("machine"):
        from . import host_firewall

        found["machine"] = facts_cluster.read_machine(FactsSource({"root": root}), request["machine"])
        found["machine"]["firewall"] = host_firewall.read_state() if root == "/" else None
        found["version"] = _read_version(place_of(PROGRAM, root)) if record else ""
        found["upgrade"] = _read_upgrade(root)
    if request.get("facts"):
        from . import facts

        found["facts"] = facts.gather_facts({"peers": request.get("peers", [])})
    if request.get("kubeconfig"):
        found["kubeconfig"] = _read_kubeconfig(root)
    return found


def _read_settled(unit: str) -> dict[str, t.Any]:
    """Return the state of a unit; one that starts by itself for the first time, as after a boot, is waited for."""
    end = time.monotonic() + _BOOT_S
    found = read_unit(unit)
    while found["active"] == "activating" and not found["restarts"] and time.monotonic() < end:
        time.sleep(0.2)
        found = read_unit(unit)
    return found


def _find_datastore(root: str) -> str:
    """Return where a server keeps the cluster: ``etcd``, ``sqlite``, or empty where it has not begun."""
    places = {"etcd": f"{DATA}/server/db/etcd/member", "sqlite": f"{DATA}/server/db/state.db"}
    return next((name for name, path in places.items() if place_of(path, root).exists()), "")


def _read_upgrade(root: str) -> dict[str, t.Any]:
    """Return whether an upgrade was begun here, and the bytes of the binary and the datastore, which it would copy."""
    size = 0
    for folder, _folders, names in os.walk(place_of(f"{DATA}/server/db", root)):
        size += sum(_size(pathlib.Path(folder, name)) for name in names)
    begun = any(place_of(path, root).exists() for path in UPGRADE)
    return {"begun": begun, "bytes": size + _size(place_of(PROGRAM, root))}


def _size(place: pathlib.Path) -> int:
    try:
        return place.stat().st_size
    except OSError:
        # Of a file that K3s has removed meanwhile.
        return 0


def _find_server(root: str) -> str:
    """Return the URL that the configuration of this node joins, empty where it has none."""
    text = _text(place_of(CONFIG, root))
    return next((line.partition(": ")[2].strip() for line in text.splitlines() if line.startswith("server: ")), "")


def _read_version(program: pathlib.Path) -> str:
    """Return the version that a binary says it is of, empty where it does not run here."""
    try:
        said = run(str(program), "--version", check=False)
    except OSError:
        # Of another architecture.
        return ""
    found = re.match(r"k3s version (v\S+)", said)
    return found[1] if found else ""


def _read_kubeconfig(root: str) -> str | None:
    return _text(place_of("etc/rancher/k3s/k3s.yaml", root)) or None


def _bring(request: NodeRequest) -> dict[str, t.Any]:
    """Bring files beside their places."""
    return placed_files.bring(_recorder(request), request)


def _apply(request: NodeRequest) -> dict[str, t.Any]:
    """Place files, the record first; enable the unit. ``start_with``: the digest of what it is to be started with.

    A binary that says that it is of another ``version`` than asked for is not placed.
    """
    part = placed_files.part_of(PROGRAM, request.get("root", "/"))
    if request.get("version") and any(item["path"].lstrip("/") == PROGRAM for item in request["files"]):
        part.chmod(0o755)
        said = _read_version(part)
        if said and said != request["version"]:
            part.unlink()
            return {"problem": f"the binary is of K3s {said}, and k3s_version is {request['version']}"}
    about = {name: request[name] for name in ("unit", "role", "cluster", "start_with")}
    result = _recorder(request).apply(request["files"], request.get("obsolete", []), about)
    if request.get("root", "/") == "/" and not result.get("problem"):
        run("systemctl", "daemon-reload")
        run("systemctl", "enable", "--quiet", request["unit"])
    return result


def _recorder(request: NodeRequest) -> Recorder:
    return Recorder(RECORD, TREES, request.get("root", "/"))


def _restart(request: NodeRequest) -> dict[str, t.Any]:
    """Start or restart the unit, unless it runs with what was placed last, and wait until it is ready.

    ``kubeconfig``: whether the administrator's is wanted in the answer. ``member``: the name of the Node of one of
    several servers, which is ready when its etcd has a vote.
    """
    unit = request["unit"]
    stay(request.get("root", "/"))
    recorder = _recorder(request)
    record = recorder.read() or {"files": {}}
    wanted = record.get("start_with")
    same = wanted is not None and record.get("started_with") == wanted and read_unit(unit)["active"] == "active"
    end = time.monotonic() + float(request["wait_s"])
    problem = None if same else _start(unit, float(request["wait_s"]))
    if not problem and not same and request.get("member"):
        problem = _await_vote(unit, request["member"], end)
    if problem:
        return {"problem": problem}
    if not same:
        recorder.write({**record, "started_with": wanted})
    return {"changed": not same, "kubeconfig": _read_kubeconfig("/") if request.get("kubeconfig") else None}


def _start(unit: str, wait_s: float) -> str | None:
    """Start a unit and wait for it; return what is wrong when it says that it never will be ready."""
    since = _find_log_end(unit)
    run("systemctl", "reset-failed", unit, check=False)
    run("systemctl", "restart", "--no-block", unit)
    end = time.monotonic() + wait_s
    state: dict[str, t.Any] = {}
    while time.monotonic() < end:
        state = read_unit(unit)
        lines = _read_log(unit, since)
        refused = [line for line in lines if any(text in line for text in _REFUSALS)]
        if state["active"] == "active":
            return None
        patience = 8 if any(text in line for line in lines for text in _PASSING) else 2
        if len(refused) >= 3 or state["restarts"] >= patience:
            shown = refused or [line for line in lines if "level=fatal" in line or "level=error" in line] or lines
            run("systemctl", "stop", unit, check=False)
            return f"{unit} is stopped again, it does not start: {_words(shown[-1:])}"
        time.sleep(0.2)
    return f"{unit} is not ready after {wait_s:.0f} s: {_words(_read_log(unit, since)[-1:])}"


def _await_vote(unit: str, node: str, end: float) -> str | None:
    """Wait until a server's member of etcd has a vote: the next server joins only then."""
    while time.monotonic() < end:
        # --raw: anything else would have kubectl keep what it learns of the API below root's home.
        text = run(f"/{PROGRAM}", "kubectl", "get", "--raw", f"/api/v1/nodes/{node}", check=False)
        conditions = json.loads(text)["status"].get("conditions", []) if text.startswith("{") else []
        if any(item["type"] == "EtcdIsVoter" and item["status"] == "True" for item in conditions):
            return None
        time.sleep(0.5)
    return f"{unit} runs, but its member of etcd has no vote yet"


def _leave(request: NodeRequest) -> dict[str, t.Any]:
    """Keep a server that is taken out of etcd from being started again, which would have it join again."""
    record = _recorder(request).read()
    root = request.get("root", "/")
    place = place_of(LEAVES, root)
    if record is None or place.exists():
        return {"changed": False}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("# Written by muster.training: this server leaves.\n[Service]\nRestart=no\n")
    if root == "/":
        run("systemctl", "disable", "--quiet", record["unit"], check=False)
        run("systemctl", "daemon-reload")
    return {"changed": True}


def stay(root: str) -> None:
    """Undo that: the server stays after all, or it is removed with everything."""
    place = place_of(LEAVES, root)
    if place.exists():
        place.unlink()
        if not any(place.parent.iterdir()):
            place.parent.rmdir()
        if root == "/":
            run("systemctl", "daemon-reload")


def _token(request: NodeRequest) -> dict[str, t.Any]:
    """Make a token for an agent (``ttl_s``), look whether one is valid (``given``), or end one (``delete``).

    ``server``: return the one by which servers join. It is the cluster's own, and has no end.
    """
    program = f"/{PROGRAM}"
    authority = hashlib.sha256(pathlib.Path(f"/{DATA}/server/tls/server-ca.crt").read_bytes()).hexdigest()
    if request.get("server"):
        return {"authority": authority, "token": _text(pathlib.Path(f"/{DATA}/server/token")).strip()}
    if request.get("given"):
        return {"authority": authority, "problem": _token_problem(request["given"], authority, program)}
    if request.get("delete"):
        known = request["delete"] in _token_ids(program)
        if known:
            run(program, "token", "delete", request["delete"])
        left = request["delete"] in _token_ids(program)
        return {"deleted": known, "absent": not left}
    words = ["--ttl", f"{int(request['ttl_s'])}s", "--description", request["description"]]
    return {"authority": authority, "token": run(program, "token", "create", *words).strip()}


def _token_problem(given: str, authority: str, program: str) -> str | None:
    digest, separator, rest = given.removeprefix("K10").partition("::")
    if not given.startswith("K10") or not separator:
        return "the token is not in K10 form (K10DIGEST::ID.SECRET)"
    if digest != authority:
        return "the token is for another cluster: the digest in it is not that of this server's CA"
    if re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", rest):
        ident = rest.partition(".")[0]
        return None if ident in _token_ids(program) else f"the token {ident} is expired or does not exist"
    places = [pathlib.Path(f"/{DATA}/server/{name}") for name in ("token", "node-token", "agent-token")]
    passwords = {_text(place).strip().rpartition(":")[2] for place in places if place.exists()}
    return None if rest.rpartition(":")[2] in passwords else "the server does not know the token"


def _token_ids(program: str) -> list[str]:
    listed = json.loads(run(program, "token", "list", "-o", "json") or "[]")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # K3s says "expires"; tokens of the tokencleaner's last seconds are no longer taken.
    live = [item for item in listed or [] if str(item.get("expires") or now) >= now]
    return [str(item["token"]).partition(".")[0] for item in live]


def _foreign(root: str) -> list[str]:
    return [
        f"{name} (/{path})" for name, paths in FOREIGN.items() for path in paths if _is_content(place_of(path, root))
    ]


def _is_content(place: pathlib.Path) -> bool:
    """Return whether a path is a file or a folder with something in it: an empty mount point is not in use."""
    return place.exists() and (not place.is_dir() or any(place.iterdir()))


def _addresses() -> list[dict[str, t.Any]]:
    """Return the addresses of this node's own links, those of the default route first; those of pods are left out."""
    try:
        links = json.loads(run("ip", "-json", "address", check=False) or "[]")
    except ValueError:
        return []
    rows = [line.split() for line in _text(pathlib.Path("/proc/net/route")).splitlines()[1:]]
    default = next((row[0] for row in rows if row[1:2] == ["00000000"]), None)
    links.sort(key=lambda link: link["ifname"] != default)
    return [
        {"interface": link["ifname"], "address": item["local"], "prefix": item["prefixlen"]}
        for link in links
        if not link["ifname"].startswith(("lo", "cni", "flannel", "veth", "kube"))
        for item in link.get("addr_info", [])
        if item.get("scope") == "global"
    ]


def _find_log_end(unit: str) -> str:
    text = run("journalctl", "--unit", unit, "--lines=1", "--show-cursor", "--no-pager", check=False)
    return text.rpartition("-- cursor: ")[2].strip() if "-- cursor: " in text else ""


def _read_log(unit: str, since: str) -> list[str]:
    after = [f"--after-cursor={since}"] if since else []
    text = run("journalctl", "--unit", unit, "--output=cat", "--lines=200", "--no-pager", *after, check=False)
    return [line for line in text.splitlines() if "level=" in line or "level:" in line]


def _words(lines: t.Sequence[str]) -> str:
    """Return what a line of K3s' log says."""
    line = lines[0] if lines else "it said nothing"
    found = re.search(r'msg="((?:[^"\\]|\\.)*)"', line)
    return (found[1].replace('\\"', '"') if found else line)[:400]


def _text(place: pathlib.Path) -> str:
    try:
        return place.read_text()
    except OSError:
        return ""


def _remove(request: NodeRequest) -> dict[str, t.Any]:
    from . import host_k3s_removal

    return host_k3s_removal.remove(request)


def _find_image(request: NodeRequest) -> dict[str, t.Any]:
    from . import host_images

    return host_images.find(request)


def _load_image(request: NodeRequest) -> dict[str, t.Any]:
    from . import host_images

    return host_images.load(request)


# Folders that K3s makes. Those that were there before, empty, are emptied; all others go.
TREES = ("etc/rancher", "etc/rancher/k3s", "etc/rancher/node", "var/lib/rancher", DATA, "var/lib/kubelet", "run/k3s",
         "run/flannel", "var/lib/cni", "var/log/pods", "var/log/containers")  # fmt: skip
_STEPS: dict[str, t.Callable[[NodeRequest], dict[str, t.Any]]] = {
    "look": _read_state,
    "bring": _bring,
    "discard": placed_files.discard,
    "apply": _apply,
    "restart": _restart,
    "token": _token,
    "leave": _leave,
    "find_image": _find_image,
    "load_image": _load_image,
    "remove": _remove,
}
