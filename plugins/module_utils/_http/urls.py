# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses: base URLs, paths, query strings and proxies."""

from __future__ import annotations

import base64
import functools
import ipaddress
import typing as t
import urllib.parse
from collections.abc import Mapping

from .._model.errors import InputError

Query = t.Sequence[tuple[str, str]]

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(t.NamedTuple):
    """Scheme, host and port of a server; ``host`` is bare, an IPv6 address without brackets."""

    scheme: t.Literal["http", "https"]
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The ``Host`` header: IPv6 addresses in brackets, the scheme's own port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


class BaseUrl(t.NamedTuple):
    """An API's address: its origin and the path that all its calls share, without a final slash."""

    origin: Origin
    path: str

    def under(self, path: str, *others: str) -> BaseUrl:
        """Return the address that ends in ``path``, whether it was written so, with one of ``others`` or bare."""
        bare = self.path
        for end in (path, *others):
            bare = bare.removesuffix(end)
        return BaseUrl(self.origin, bare + path)

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"


class Proxy(t.NamedTuple):
    """An HTTP proxy. ``credentials`` is the value of ``Proxy-Authorization`` and is never shown."""

    host: str
    port: int
    credentials: str = ""

    def __repr__(self) -> str:
        return f"Proxy(host={self.host!r}, port={self.port!r})"


def is_address(host: str) -> bool:
    """Tell whether ``host`` is an address of IPv4 or IPv6 rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine, by its literal name or address (nothing is resolved)."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_unsafe_characters(url: str) -> bool:
    """Tell whether ``url`` holds characters that are not valid in a URL or that parsers read in different ways."""
    return not (url.isascii() and url.isprintable()) or " " in url or "\\" in url


def _split_url(url: str, option: str) -> urllib.parse.SplitResult:
    """Split ``url`` or raise an ``InputError`` that does not echo it: it may hold a password."""
    if not isinstance(url, str) or not url.strip():
        raise InputError(option, "must be a URL such as https://api.example.com/v1")
    if _has_unsafe_characters(url):
        raise InputError(option, "must not contain spaces, control or non-ASCII characters")
    try:
        parts = urllib.parse.urlsplit(url)
        _unused = parts.port
    except ValueError:
        raise InputError(option, "is not a valid URL (check host and port)") from None
    if parts.scheme.lower() not in _DEFAULT_PORTS or not parts.hostname:
        raise InputError(option, "must start with https:// (or http://) and name a host")
    return parts


def _parse_origin(parts: urllib.parse.SplitResult) -> Origin:
    scheme: t.Literal["http", "https"] = "https" if parts.scheme.lower() == "https" else "http"
    port = parts.port if parts.port is not None else _DEFAULT_PORTS[scheme]
    return Origin(scheme, (parts.hostname or "").lower(), port)


def parse_base_url(url: str, option: str, *, allow_http: bool = False) -> BaseUrl:
    """Return the address that ``url`` names, such as ``https://api.example.com/v1``.

    Plain ``http`` would show the credential to the network: it is refused but for this machine itself or with
    ``allow_http``. ``option`` names the option in errors. Raises :class:`InputError`.
    """
    parts = _split_url(url, option)
    if parts.username is not None or parts.password is not None:
        raise InputError(option, "must not contain a user or password", "Give the credential in its own option")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise InputError(option, "must not contain a query or fragment")
    origin = _parse_origin(parts)
    if origin.scheme == "http" and not allow_http and not is_loopback(origin.host):
        raise InputError(option, "must use https", "Plain http sends the credential in the clear")
    return BaseUrl(origin, parts.path.rstrip("/"))


def route(template: str, **values: t.Any) -> str:
    """Fill ``{name}`` places of a path with percent-encoded values: ``route("/instances/{id}", id=7)``."""
    for name, value in values.items():
        # A value of dots only would be resolved away by servers and proxies.
        if not str(value).strip("."):
            raise InputError(name, "must not be empty or made of dots")
    return template.format(**{name: urllib.parse.quote(str(value), safe="") for name, value in values.items()})


def encode_query(query: Query) -> str:
    """Return ``?a=1&b=2`` for pairs in their order, keys may repeat; empty for no pairs."""
    return _encode_pairs(tuple(query)) if query else ""


# Hundreds of objects are sent with one and the same query.
@functools.lru_cache(16)
def _encode_pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return "?" + urllib.parse.urlencode(pairs)


def redirect_target(origin: Origin, target: str, location: str) -> tuple[str, Query] | None:
    """Return path and query of a redirect that stays on ``origin``, else None.

    A redirect to another host or scheme is never followed: it would carry the credential away or lose it.
    """
    if not location or _has_unsafe_characters(location):
        return None
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"{origin}{target}", location))
        same = parts.scheme in _DEFAULT_PORTS and _parse_origin(parts) == origin and parts.username is None
        query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return None
    return (parts.path or "/", query) if same else None


def parse_proxy(url: str, option: str) -> Proxy:
    """Return the proxy that ``url`` names. Only HTTP proxies are known; https goes through them by CONNECT."""
    parts = _split_url(url if "://" in url else f"http://{url}", option)
    if parts.scheme.lower() != "http":
        raise InputError(option, "must be an http:// proxy")
    credentials = ""
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        credentials = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy((parts.hostname or "").lower(), parts.port or 80, credentials)


def _is_bypassed(origin: Origin, no_proxy: str) -> bool:
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        if entry == "*" or entry in (origin.host, origin.authority):
            return True
        if entry and origin.host.endswith("." + entry.lstrip(".").removeprefix("*.")):
            return True
    return False


def proxy_for(origin: Origin, setting: str, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for ``origin``.

    ``setting`` is ``env`` (``https_proxy``, ``http_proxy``, ``all_proxy`` and ``no_proxy``, in either case),
    ``none`` or a proxy's URL. This machine itself is always reached directly.
    """
    if setting == "none" or is_loopback(origin.host):
        return None
    if setting != "env":
        return parse_proxy(setting, "proxy")

    def variable(name: str) -> str:
        return environ.get(name) or environ.get(name.upper()) or ""

    # A web server's CGI sets HTTP_PROXY from a client's "Proxy:" header (httpoxy); it is not a setting of the user.
    plain = environ.get("http_proxy", "") if "REQUEST_METHOD" in environ else variable("http_proxy")
    url = (variable("https_proxy") if origin.scheme == "https" else plain) or variable("all_proxy")
    if not url or _is_bypassed(origin, variable("no_proxy")):
        return None
    return parse_proxy(url, f"{origin.scheme}_proxy")
