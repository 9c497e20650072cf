# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the K3s binary on the lab's machines: the same command over upstream components of Kubernetes.

It is strict: an option, file or word that K3s does not have is an error. What is not as in K3s is in tests/lab/README.md.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import sys
import typing as t

import agent
import balancer
import etcd
import flags
import network
import server
import tokens
from common import BIN, DATA, Parts, own_address, tell_systemd

VERSION = "v1.34.10+k3s1"
_TOKEN_USAGE = "usage: k3s token create [--ttl TTL] [--description TEXT] | delete TOKEN-ID | list [-o json]"


def main(argv: list[str]) -> int:
    """Run a command of K3s."""
    if os.path.basename(argv[0]) in ("kubectl", "ctr", "crictl"):
        argv = ["k3s", *argv]
        argv[1] = os.path.basename(argv[1])
    command, rest = (argv[1] if len(argv) > 1 else "--help"), argv[2:]
    if command in ("--version", "-v"):
        print(f"k3s version {VERSION} (5ta4d1n0)\ngo version go1.24.9")
    elif command == "kubectl":
        os.environ.setdefault("KUBECONFIG", server.KUBECONFIG)
        os.execv(BIN, [BIN, "kubectl", *rest])
    elif command == "ctr":
        os.execvp("ctr", ["ctr", f"--address={agent.SOCKET}", "--namespace=k8s.io", *rest])
    elif command == "token":
        return _token(rest)
    elif command in ("server", "agent"):
        _run(command, rest)
    else:
        print(f"No help topic for '{command}'", file=sys.stderr)
        return 3
    return 0


def _run(command: str, argv: list[str]) -> t.NoReturn:
    try:
        options = flags.read(command, argv)
    except flags.UsageError as exc:
        flags.refuse(str(exc))
    if os.geteuid() != 0:
        flags.refuse(f"{command} must run as root")
    for name in ("data-dir", "write-kubeconfig"):
        if name in options and options[name] not in (str(DATA), server.KUBECONFIG):
            flags.refuse(f"the stand-in has one {name}")
    # By this name of its process it is known, to its own scripts, too.
    pathlib.Path("/proc/self/comm").write_text(f"k3s-{command}")
    name = str(options.get("node-name") or socket.gethostname()).lower()
    address = _address(options)
    parts = Parts()
    if command == "server":
        _serve(options, parts, name, address)
    else:
        if not options.get("server"):
            flags.refuse("--server is required")
        if not agent.token_of(options):
            flags.refuse("--token is required")
        agent.join(options, name, address)
        host = str(options["server"]).removeprefix("https://").rpartition(":")[0]
        agent.run(options, parts, name, address, balancer.start(host))
    tell_systemd("READY=1")
    parts.wait()


def _address(options: t.Mapping[str, t.Any]) -> str:
    """Return the address of this node: node-ip, else that of flannel-iface, else that of the default route."""
    if options.get("node-ip"):
        return str(options["node-ip"][0])
    if not options.get("flannel-iface"):
        return own_address()
    try:
        return network.address_of(str(options["flannel-iface"]))
    except ValueError as exc:
        flags.refuse(str(exc))


def _serve(options: t.Mapping[str, t.Any], parts: Parts, name: str, address: str) -> None:
    if options.get("server") and not agent.token_of(options):
        flags.refuse("--token is required")
    try:
        made = server.Server(options, name, address)
        if etcd.is_embedded(options):
            made.store = _member(options, made, name, address)
        password = made.keys(agent.token_of(options))
        made.start(parts)
    except (ValueError, OSError) as exc:
        flags.refuse(str(exc))
    server.serve(made, password)
    own = {**options, "server": f"https://{address}:{made.port}", "token": f"K10{made.digest}::server:{password}"}
    agent.join(own, name, address)
    agent.run(own, parts, name, address, address)
    if isinstance(made.store, etcd.Member):
        made.store.watch(made.ask)
    made.apply_manifests()


def _member(options: t.Mapping[str, t.Any], made: server.Server, name: str, address: str) -> etcd.Member:
    """Return this server's member of etcd; one that joins takes the keys of the server that it is told of first."""
    url = str(options.get("server") or "")
    if url and not (etcd.CLUSTER / "member").exists():
        answer = agent.fetch_bootstrap(options)
        made.take(answer)
        return etcd.Member(name, address, answer["members"])
    # With data of its own the option is ignored, as K3s does; where it leads is asked whether this member was removed.
    peers = [url.removeprefix("https://").rpartition(":")[0]] if url else []
    return etcd.Member(name, address, peers)


def _token(words: list[str]) -> int:
    options: dict[str, str] = {"ttl": "24h0m0s", "description": ""}
    verb, *rest = words or [""]
    plain: list[str] = []
    while rest:
        word = rest.pop(0)
        key, separator, value = word.lstrip("-").partition("=")
        if word.startswith("-") and key in ("ttl", "description", "o", "output"):
            options[key] = value if separator else rest.pop(0)
        elif word.startswith("-"):
            print(f"flag provided but not defined: -{key}", file=sys.stderr)
            return 1
        else:
            plain.append(word)
    try:
        if verb == "create" and not plain:
            print(tokens.create_token(options["ttl"], options["description"]))
        elif verb == "delete" and plain:
            for token in plain:
                tokens.delete_token(token)
        elif verb == "list":
            found = [
                {"token": f"{item['token-id']}.{item['token-secret']}", "expires": item.get("expiration")}
                for item in tokens.list_tokens()
            ]
            print(json.dumps(found))
        else:
            print(_TOKEN_USAGE, file=sys.stderr)
            return 1
    except (OSError, ValueError) as exc:
        print(f"Error: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main([os.path.basename(sys.argv[0]), *sys.argv[1:]]))
