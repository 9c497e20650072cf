#!/bin/sh
# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Removes private data from a rented machine before it is terminated, on a best-effort basis. The last line of the output
# is a JSON list of {step, ok, problem, removed}. The owner of a rented machine is root there, so this proves nothing:
# keys that are valid for longer than the machine do not belong on it.
set -u
root=${MUSTER_HYGIENE_ROOT:-}
report=

limit() { if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift; "$@"; fi; }

note() {
  report="$report${report:+, }{\"step\": \"$1\", \"ok\": $2, \"problem\": \"$3\", \"removed\": $4}"
}

forget() {
  # forget STEP PATH...: a path that does not exist is not a problem.
  step=$1
  shift
  removed=false
  for path in "$@"; do
    if [ -e "$path" ] || [ -L "$path" ]; then
      removed=true
      if ! limit 15 rm -rf -- "$path" 2>/dev/null; then
        note "$step" false "could not be removed" true
        return
      fi
    fi
  done
  note "$step" true "" "$removed"
}

forget_at_home() {
  # forget_at_home STEP NAME...: in the home of every user, and of the administrator.
  what=$1
  shift
  set -- "$@" --
  while [ "$1" != -- ]; do
    for home in "$root/root" "$root"/home/*; do set -- "$@" "$home/$1"; done
    shift
  done
  shift
  forget "$what" "$@"
}

if command -v tailscale >/dev/null 2>&1; then
  if limit 10 tailscale logout >/dev/null 2>&1; then note tailscale_logout true "" true
  else note tailscale_logout false "did not log out" false
  fi
fi
forget k3s_credentials "$root/etc/rancher" "$root/var/lib/rancher/k3s/agent" "$root/var/lib/rancher/k3s/server/cred"
forget_at_home kubeconfig .kube
forget_at_home hub_tokens .cache/huggingface/token .netrc
forget_at_home registry_logins .docker/config.json .config/containers/auth.json
forget_at_home cloud_credentials .aws
forget_at_home run_files .local/state/muster
forget_at_home shell_history .bash_history .zsh_history
echo "[$report]"
