# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of ``k3s server`` and ``k3s agent``, from files, environment and command line; any other one is an error.

Names as in k3s-io/k3s, pkg/cli/cmds/{agent,server}.go and the page cli/server of docs.k3s.io.
"""

from __future__ import annotations

import os
import pathlib
import sys
import typing as t

import yaml

CONFIG = "/etc/rancher/k3s/config.yaml"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Values of these come several times; in a file they are a list.
_LISTS = _names(
    "node-ip node-external-ip node-internal-dns node-external-dns kubelet-arg kube-proxy-arg node-label node-taint"
    " airgap-extra-registry cluster-cidr service-cidr cluster-dns tls-san kube-apiserver-arg etcd-arg"
    " kube-scheduler-arg kube-controller-manager-arg kube-cloud-controller-manager-arg disable"
)
_BOOLEANS = _names(
    "debug alsologtostderr with-node-id selinux protect-kernel-defaults disable-default-registry-endpoint rootless"
    " prefer-bundled-bin docker disable-apiserver-lb nonroot-devices tls-san-security flannel-ipv6-masq"
    " flannel-external-ip cluster-init cluster-reset etcd-expose-metrics etcd-disable-snapshots etcd-snapshot-compress"
    " etcd-s3 etcd-s3-skip-ssl-verify etcd-s3-insecure disable-scheduler disable-cloud-controller disable-kube-proxy"
    " disable-network-policy disable-helm-controller embedded-registry supervisor-metrics secrets-encryption"
    " enable-pprof disable-agent disable-apiserver disable-controller-manager disable-etcd"
)
AGENT = _names(
    "config debug v vmodule log alsologtostderr token token-file server data-dir node-name with-node-id node-label"
    " node-taint image-credential-provider-bin-dir image-credential-provider-config selinux lb-server-port"
    " protect-kernel-defaults container-runtime-endpoint default-runtime disable-default-registry-endpoint pause-image"
    " snapshotter private-registry airgap-extra-registry node-ip node-external-ip node-internal-dns node-external-dns"
    " resolv-conf flannel-iface flannel-conf flannel-cni-conf kubelet-arg kube-proxy-arg rootless prefer-bundled-bin"
    " docker vpn-auth vpn-auth-file nonroot-devices bind-address image-service-endpoint disable-apiserver-lb"
    " enable-pprof"
)
SERVER = AGENT | _names(
    "https-listen-port advertise-address advertise-port tls-san tls-san-security cluster-cidr service-cidr"
    " service-node-port-range cluster-dns cluster-domain flannel-backend flannel-ipv6-masq flannel-external-ip"
    " egress-selector-mode servicelb-namespace write-kubeconfig write-kubeconfig-mode write-kubeconfig-group"
    " write-kubeconfig-name helm-job-image agent-token agent-token-file cluster-init cluster-reset"
    " cluster-reset-restore-path kube-apiserver-arg etcd-arg kube-controller-manager-arg kube-scheduler-arg"
    " kube-cloud-controller-manager-arg kine-tls datastore-endpoint datastore-cafile datastore-certfile"
    " datastore-keyfile etcd-expose-metrics etcd-disable-snapshots etcd-snapshot-name etcd-snapshot-schedule-cron"
    " etcd-snapshot-retention etcd-snapshot-dir etcd-snapshot-compress etcd-s3 etcd-s3-endpoint etcd-s3-endpoint-ca"
    " etcd-s3-skip-ssl-verify etcd-s3-access-key etcd-s3-secret-key etcd-s3-bucket etcd-s3-region etcd-s3-folder"
    " etcd-s3-proxy etcd-s3-config-secret etcd-s3-insecure etcd-s3-timeout default-local-storage-path disable"
    " disable-scheduler disable-cloud-controller disable-kube-proxy disable-network-policy disable-helm-controller"
    " disable-agent disable-apiserver disable-controller-manager disable-etcd embedded-registry supervisor-metrics"
    " secrets-encryption secrets-encryption-provider system-default-registry"
)
_ENVIRONMENT = {
    "K3S_TOKEN": "token",
    "K3S_TOKEN_FILE": "token-file",
    "K3S_URL": "server",
    "K3S_NODE_NAME": "node-name",
    "K3S_DATA_DIR": "data-dir",
    "K3S_AGENT_TOKEN": "agent-token",
    "K3S_KUBECONFIG_MODE": "write-kubeconfig-mode",
    "K3S_KUBECONFIG_OUTPUT": "write-kubeconfig",
    "K3S_SELINUX": "selinux",
    "K3S_RESOLV_CONF": "resolv-conf",
    "K3S_CLUSTER_INIT": "cluster-init",
}


class UsageError(Exception):
    """An option that K3s does not have, or a value of another type than it takes."""


def read(command: str, argv: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the options of a command; later places go before earlier ones: files, environment, command line.

    :raises UsageError: as K3s refuses them.
    """
    known = SERVER if command == "server" else AGENT
    values: dict[str, t.Any] = {}
    for place in _files():
        _add(values, _parse(place), known, str(place))
    given = {option: os.environ[name] for name, option in _ENVIRONMENT.items() if os.environ.get(name)}
    _add(values, {key: value for key, value in given.items() if key in known}, known, "the environment")
    _add(values, _command_line(argv, known), known, "the command line")
    return values


def _files() -> list[pathlib.Path]:
    main = pathlib.Path(CONFIG)
    drops = sorted(pathlib.Path(f"{CONFIG}.d").glob("*.yaml"))
    return [*([main] if main.exists() else []), *drops]


def _parse(place: pathlib.Path) -> dict[str, t.Any]:
    try:
        value = yaml.safe_load(place.read_text())
    except yaml.YAMLError as exc:
        raise UsageError(f"failed to parse config file {place}: {' '.join(str(exc).split())}") from exc
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"failed to parse config file {place}: not a mapping")
    return value


def _command_line(argv: t.Sequence[str], known: frozenset[str]) -> dict[str, t.Any]:
    found: dict[str, t.Any] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise UsageError(f"unexpected argument {word}")
        name, separator, text = word[2:].partition("=")
        if name not in known:
            raise UsageError(f"flag provided but not defined: -{name}")
        if not separator and name in _BOOLEANS:
            text = "true"
        elif not separator:
            if not words:
                raise UsageError(f"flag needs an argument: -{name}")
            text = words.pop(0)
        found.setdefault(name, []).append(text) if name in _LISTS else found.update({name: text})
    return found


def _add(values: dict[str, t.Any], new: t.Mapping[str, t.Any], known: frozenset[str], where: str) -> None:
    for written, value in new.items():
        name = written.removesuffix("+")
        if name not in known:
            raise UsageError(f"flag provided but not defined: -{name} (in {where})")
        parsed = _value(name, value, where)
        values[name] = [*values.get(name, []), *parsed] if written.endswith("+") else parsed


def _value(name: str, value: t.Any, where: str) -> t.Any:
    if name in _LISTS:
        items = value if isinstance(value, list) else [value]
        return [part for item in items for part in str(item).split(",")] if name != "kubelet-arg" else list(items)
    if name in _BOOLEANS:
        text = str(value).lower()
        if text not in ("true", "false"):
            raise UsageError(f'invalid boolean value "{value}" for -{name} (in {where})')
        return text == "true"
    if isinstance(value, list | dict):
        raise UsageError(f"invalid value for -{name}: one value is wanted (in {where})")
    return str(value)


def refuse(problem: str) -> t.NoReturn:
    """End as K3s does when it cannot start."""
    print(f'level=fatal msg="Error: {problem}"', file=sys.stderr, flush=True)
    sys.exit(1)
