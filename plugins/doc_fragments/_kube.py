# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of everything that talks to an API server of Kubernetes. Private; it may change without notice."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that plugin_utils._kube.api.connect reads."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - A kubeconfig file, several joined by colons, or the content of one as a mapping. Relative to the
        playbook's folder; with a playbook of this collection, to the working directory.
      - Without it and without O(context), the kubeconfig of a cluster that the playbook C(cluster) brought up. It is
        C(kubeconfig) in the folder of the cluster (variables C(muster_state) and C(muster_cluster)).
      - Otherwise E(KUBECONFIG), then C(~/.kube/config), then the service account of the pod that Ansible runs in.
      - Client certificates, tokens, token files, basic authentication and exec plugins are read as kubectl reads them.
        An auth-provider needs the Python package C(kubernetes) on the controller.
    type: raw
  context:
    description: The context of the kubeconfig, if not its current one.
    type: str
  host:
    description: The address of the API server, instead of a kubeconfig.
    type: str
  token:
    description: A bearer token, for O(host) or in place of the kubeconfig's credential.
    type: str
  token_file:
    description: A file that holds a bearer token. It is read again when it gets old or is refused.
    type: path
  client_cert:
    description: A file with a client certificate.
    type: path
  client_key:
    description: A file with the key of O(client_cert), if the key is not in the same file.
    type: path
  ca_path:
    description: A file with CA certificates to trust instead of the kubeconfig's or the system's.
    type: path
  server_name:
    description: The name that the server's certificate must bear, if it is not the host of the address.
    type: str
  validate_certs:
    description: Whether the server must prove who it is. Without it the kubeconfig decides.
    type: bool
  proxy:
    description:
      - V(env) takes C(https_proxy) and C(no_proxy) of the environment, V(none) no proxy. Anything else is the address
        of an HTTP proxy. Without it the kubeconfig decides, then the environment.
    type: str
  cluster_id:
    description:
      - The uid of the namespace C(kube-system), or the id that a refusal names. Any other cluster is refused, whatever
        the kubeconfig points at.
    type: str
  patience_s:
    description: How many seconds the API server may be out of reach once it has answered.
    type: int
    default: 360
"""
