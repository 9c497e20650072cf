# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads how to reach an API server and as which user: kubeconfig files, a pod's service account, plain options.

The rules are those of client-go: several files in ``KUBECONFIG``, the first that names a thing wins; relative paths are
relative to the file they stand in; ``tokenFile`` wins over ``token``.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import pathlib
import time
import types
import typing as t
from collections.abc import Mapping

import yaml

from ....module_utils._http.urls import BaseUrl, Proxy, parse_base_url, parse_proxy
from ....module_utils._model.errors import InputError
from ....module_utils._secrets.scrubber import remember

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_FILE = 4 * 1024 * 1024
_SHORTEST_SECRET = 8
# Longer than several paths with what stands between them; a kubeconfig is longer.
_LONGEST_PATH = 2000
_NOTHING: t.Final[Mapping[str, object]] = types.MappingProxyType({})
_LOADER: t.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class KubeUser(t.NamedTuple):
    """A user and its credential. ``other`` names a kind of credential that is not read here (an auth-provider)."""

    name: str = ""
    client_pem: str = ""
    token: str = ""
    token_file: str = ""
    basic: tuple[str, str] | None = None
    exec: Mapping[str, object] | None = None
    exec_folder: str = ""
    other: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"User(name={self.name!r})"


class ClusterAccess(t.NamedTuple):
    """Everything needed to reach one API server as one user."""

    server: BaseUrl
    user: KubeUser
    ca_pem: str = ""
    verify: bool = True
    server_name: str = ""
    proxy: Proxy | t.Literal["env", "none"] = "env"
    namespace: str = "default"
    context: str = ""
    source: str = ""
    cluster: Mapping[str, object] = _NOTHING

    def __repr__(self) -> str:
        return f"Access(server={str(self.server)!r}, user={self.user!r}, context={self.context!r})"


# The content of a cluster, user or context, and the folder that its paths are relative to.
_Entry = tuple[Mapping[str, object], pathlib.Path]


class Kubeconfig(t.NamedTuple):
    """The content of one kubeconfig, or of several, by the names of its entries."""

    current_context: str = ""
    clusters: Mapping[str, _Entry] = types.MappingProxyType({})
    users: Mapping[str, _Entry] = types.MappingProxyType({})
    contexts: Mapping[str, _Entry] = types.MappingProxyType({})


def load_access(
    options: Mapping[str, object], environ: Mapping[str, str] | None = None, account: pathlib.Path = ACCOUNT
) -> ClusterAccess:
    """Return the access that ``options`` describe: ``host``, else a kubeconfig, else the account of this pod.

    Options: ``kubeconfig`` (a path, several joined by the path separator, or a mapping), ``context``, ``host``,
    ``token``, ``token_file``, ``ca_path``, ``client_cert``, ``client_key``, ``validate_certs``, ``proxy``,
    ``server_name``. Raises :class:`InputError` for what is missing or wrong, in one line.
    """
    environ = os.environ if environ is None else environ
    access = _from_options(options) if options.get("host") else _from_config(options, environ, account)
    return _apply_options(access, options)


def _from_options(options: Mapping[str, object]) -> ClusterAccess:
    return ClusterAccess(parse_base_url(str(options["host"]), "host"), KubeUser(name="options"), source="option host")


def _apply_options(access: ClusterAccess, options: Mapping[str, object]) -> ClusterAccess:
    """Return the access with each setting that is given as an option in place of the kubeconfig's."""
    if options.get("ca_path"):
        access = access._replace(ca_pem=read_text(str(options["ca_path"]), "ca_path"))
    if options.get("validate_certs") is not None:
        access = access._replace(verify=bool(options["validate_certs"]))
    if options.get("server_name"):
        access = access._replace(server_name=str(options["server_name"]))
    if options.get("proxy"):
        access = access._replace(proxy=_parse_proxy(str(options["proxy"]), "proxy"))
    return access._replace(user=_apply_user_options(access.user, options))


def _apply_user_options(user: KubeUser, options: Mapping[str, object]) -> KubeUser:
    if options.get("token") or options.get("token_file"):
        user = user._replace(
            token=register_secret(str(options.get("token") or "")),
            token_file=str(options.get("token_file") or ""),
            # The server would take the user of a certificate that is sent as well.
            exec=None,
            basic=None,
            other="",
            client_pem="",
        )
    if options.get("client_cert"):
        key = options.get("client_key") or options["client_cert"]
        pair = {"client-certificate": str(options["client_cert"]), "client-key": str(key)}
        user = user._replace(client_pem=_read_client_pem(pair, pathlib.Path(), "client_cert"))
    return user


def _from_config(options: Mapping[str, object], environ: Mapping[str, str], account: pathlib.Path) -> ClusterAccess:
    value = parse_text(options.get("kubeconfig"))
    context = str(options.get("context") or "")
    if isinstance(value, Mapping):
        return select_context(_index_entries(value, pathlib.Path.cwd(), "kubeconfig"), context, "option kubeconfig")
    named = str(value or environ.get("KUBECONFIG") or "")
    paths = [pathlib.Path(part).expanduser() for part in named.split(os.pathsep) if part]
    default = not paths
    if default:
        paths = [pathlib.Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"]
    existing = [path for path in paths if path.exists()]
    source = os.pathsep.join(map(str, paths))
    if not existing:
        if default and environ.get("KUBERNETES_SERVICE_HOST") and (account / "token").exists():
            return in_cluster(environ, account)
        fix = "Set the option kubeconfig or the variable KUBECONFIG"
        raise InputError("kubeconfig", f"there is no file {source}", fix)
    return select_context(merge_files([read_file(path) for path in existing]), context, source)


def in_cluster(environ: Mapping[str, str], account: pathlib.Path = ACCOUNT) -> ClusterAccess:
    """Return the access of the pod this process runs in."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    server = parse_base_url(f"https://{f'[{host}]' if ':' in host else host}:{port}", "KUBERNETES_SERVICE_HOST")
    namespace = account / "namespace"
    return ClusterAccess(
        server,
        KubeUser(name="service account", token_file=str(account / "token")),
        ca_pem=read_text(str(account / "ca.crt"), "service account CA"),
        namespace=read_text(str(namespace), "service account namespace").strip() if namespace.exists() else "default",
        source="service account of this pod",
    )


def read_file(path: pathlib.Path) -> Kubeconfig:
    """Return the content of one kubeconfig file; its relative paths are relative to the file's folder."""
    name = f"kubeconfig {path}"
    value = _parse_yaml(read_text(str(path), name), name)
    return _index_entries({} if value is None else value, path.resolve().parent, name)


def parse_text(value: object) -> object:
    """Return a kubeconfig that is given as its text (from a vault, a lookup, AWX) as a mapping, all else unchanged.

    Text that is neither a path nor a kubeconfig is not quoted: it may be a secret.
    """
    if not isinstance(value, str) or not ("\n" in value or value.lstrip()[:1] == "{" or len(value) > _LONGEST_PATH):
        return value
    config = _parse_yaml(value, "kubeconfig")
    if not isinstance(config, Mapping):
        raise InputError("kubeconfig", "is text, but neither the path of a file nor the content of one")
    return config


def _parse_yaml(body: str, name: str) -> object:
    try:
        # A lookup of Ansible returns a subclass of str, which the C parser refuses.
        return yaml.load(str(body), Loader=_LOADER)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise InputError(name, f"is not valid YAML{line}") from None
    except (RecursionError, ValueError):
        raise InputError(name, "is not valid YAML") from None


def _index_entries(value: object, folder: pathlib.Path, name: str) -> Kubeconfig:
    if not isinstance(value, Mapping):
        raise InputError(name, "must be a mapping with clusters, users and contexts")
    parts = [_index_list(value, key, folder, name) for key in ("cluster", "user", "context")]
    return Kubeconfig(str(value.get("current-context") or ""), *parts)


def _index_list(value: Mapping[str, object], key: str, folder: pathlib.Path, name: str) -> Mapping[str, _Entry]:
    """Return the named entries of the list ``<key>s``; of two with the same name, the first counts."""
    entries = value.get(f"{key}s") or []
    if not isinstance(entries, list):
        raise InputError(name, f"{key}s must be a list")
    index: dict[str, _Entry] = {}
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get(key) or {}, Mapping):
            raise InputError(name, f"each entry of {key}s must have name and {key}")
        if entry.get("name") is not None:
            index.setdefault(str(entry["name"]), (dict(entry.get(key) or {}), folder))
    return index


def merge_files(configs: t.Sequence[Kubeconfig]) -> Kubeconfig:
    """Return one kubeconfig from several: of two entries with the same name, the first counts."""
    merged = Kubeconfig()
    for config in configs:
        merged = Kubeconfig(
            merged.current_context or config.current_context,
            {**config.clusters, **merged.clusters},
            {**config.users, **merged.users},
            {**config.contexts, **merged.contexts},
        )
    return merged


def select_context(config: Kubeconfig, context: str | None, source: str) -> ClusterAccess:
    """Return the access of ``context`` or of the current one."""
    name = context or config.current_context
    names = ", ".join(sorted(config.contexts)) or "none"
    if not name:
        raise InputError("context", f"{source} has no current context", f"Name one of: {names}")
    if name not in config.contexts:
        raise InputError("context", f"{source} has no context {name}", f"Known contexts: {names}")
    chosen, _unused = config.contexts[name]
    cluster_name, user_name = str(chosen.get("cluster") or ""), str(chosen.get("user") or "")
    cluster, folder = _find_entry(config.clusters, "cluster", cluster_name, name, source)
    user, user_folder = _find_entry(config.users, "user", user_name, name, source) if user_name else ({}, folder)
    option = f"kubeconfig cluster {cluster_name}"
    ca = _read_data_or_file(cluster, "certificate-authority", folder, option)
    proxy = _parse_proxy(str(cluster["proxy-url"]), f"{option} proxy-url") if cluster.get("proxy-url") else "env"
    return ClusterAccess(
        _parse_server(cluster, option),
        _parse_user(user_name, user, user_folder),
        ca_pem=ca,
        verify=not cluster.get("insecure-skip-tls-verify"),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=proxy,
        namespace=str(chosen.get("namespace") or "default"),
        context=name,
        source=source,
        cluster={key: value for key, value in cluster.items() if key != "certificate-authority"}
        | ({"certificate-authority-data": base64.b64encode(ca.encode()).decode()} if ca else {}),
    )


def _find_entry(entries: Mapping[str, _Entry], key: str, name: str, context: str, source: str) -> _Entry:
    if name not in entries:
        raise InputError(f"kubeconfig context {context}", f"{source} has no {key} {name or '(not named)'}")
    return entries[name]


def _parse_server(cluster: Mapping[str, object], option: str) -> BaseUrl:
    text = str(cluster.get("server") or "")
    if text and "://" not in text:
        text = f"https://{text}"
    # kubectl proxy and tests speak plain http on this machine; anything else would send the token in the clear.
    return parse_base_url(text, f"{option} server")


def _parse_user(name: str, user: Mapping[str, object], folder: pathlib.Path) -> KubeUser:
    option = f"kubeconfig user {name}"
    provider = user.get("auth-provider")
    token_file = user.get("tokenFile")
    basic = (str(user["username"]), register_secret(str(user.get("password") or ""))) if user.get("username") else None
    plugin = user.get("exec")
    own_token = str(user.get("token") or _read_id_token(provider))
    if plugin is not None and not isinstance(plugin, Mapping):
        raise InputError(option, "exec must be a mapping")
    return KubeUser(
        name=name,
        client_pem=_read_client_pem(user, folder, option),
        token=register_secret(own_token),
        token_file=str(folder / str(token_file)) if token_file else "",
        basic=basic,
        exec=plugin,
        exec_folder=str(folder),
        other=f"auth-provider {provider.get('name')}" if isinstance(provider, Mapping) and not own_token else "",
        headers=tuple(_impersonation_headers(user)),
    )


def _read_id_token(provider: object) -> str:
    """Return the id-token of an auth-provider ``oidc``, as kubectl sends it, empty where it has expired."""
    settings = provider.get("config") if isinstance(provider, Mapping) and provider.get("name") == "oidc" else None
    token = str(settings.get("id-token") or "") if isinstance(settings, Mapping) else ""
    try:
        payload = token.split(".")[1]
        expiry = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).get("exp")
        return "" if isinstance(expiry, int | float) and expiry <= time.time() else token
    except (ValueError, IndexError, AttributeError):
        # Only the server can say how long such a token holds.
        return token


def _impersonation_headers(user: Mapping[str, object]) -> t.Iterator[tuple[str, str]]:
    if user.get("as"):
        yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    if user.get("as-user-extra"):
        # Without it, the server would see another user than the kubeconfig describes.
        raise InputError("kubeconfig as-user-extra", "is not supported", "Impersonate a user by name, uid and group")
    groups = user.get("as-groups") or []
    if not isinstance(groups, list):
        raise InputError("kubeconfig as-groups", "must be a list")
    if len(groups) > 1:
        raise InputError("kubeconfig as-groups", "must name one group: several cannot be impersonated")
    for group in groups:
        yield "Impersonate-Group", str(group)


def _read_client_pem(user: Mapping[str, object], folder: pathlib.Path, option: str) -> str:
    """Return certificate and key one after the other, empty when the user has none."""
    certificate = _read_data_or_file(user, "client-certificate", folder, option)
    key = _read_data_or_file(user, "client-key", folder, option)
    if not certificate and not key:
        return ""
    if not certificate or not key:
        raise InputError(
            option, f"has a client {'key' if key else 'certificate'} without its {'certificate' if key else 'key'}"
        )
    return f"{certificate.rstrip()}\n{register_secret(key)}"


def _read_data_or_file(entry: Mapping[str, object], key: str, folder: pathlib.Path, option: str) -> str:
    data = entry.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode("".join(str(data).split()), validate=True).decode()
        except (binascii.Error, ValueError):
            raise InputError(option, f"{key}-data is not base64 of text") from None
    path = entry.get(key)
    return read_text(str(folder / str(path)), f"{option} {key}") if path else ""


def read_text(path: str, option: str) -> str:
    try:
        with open(os.path.expanduser(path), "rb") as stream:
            data = stream.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise InputError(option, f"{path} is larger than {_MAX_FILE >> 20} MiB")
        return data.decode("utf-8-sig")
    except OSError as exc:
        raise InputError(option, f"cannot read {path} ({(exc.strerror or 'unreadable').lower()})") from None
    except ValueError:
        raise InputError(option, f"{path} is not UTF-8 text") from None


def _parse_proxy(url: str, option: str) -> Proxy | t.Literal["env", "none"]:
    if url in ("env", "none"):
        return "env" if url == "env" else "none"
    kind = url.split("://")[0].lower() if "://" in url else "http"
    if kind != "http":
        raise InputError(option, f"{kind} proxies are not supported", "Use an http:// proxy")
    return parse_proxy(url, option)


def register_secret(value: str) -> str:
    """Return ``value`` after its registration as a secret: no output of this process shows it from here on."""
    if len(value) >= _SHORTEST_SECRET:
        remember(value)
    return value
