#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Gets what tests need beside Go: kube-apiserver, etcd and kubectl, built from
# their Go modules, and, as root on Debian, the packages that node tests use, and
# the openstack client (11 MB), whose parser the documents' commands are tried on.
# Says plainly what is missing and which tests skip then; it never fails for it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=hack/bed/lib.sh
. hack/bed/lib.sh
# shellcheck source=hack/bed/install.sh
. hack/bed/install.sh
PACKAGES=(ethtool iproute2 iputils-ping nftables openvswitch-switch procps
	python3-octaviaclient python3-openstackclient)

assets() {
	local f
	for f in kube-apiserver etcd kubectl; do [[ -x $KUBEBUILDER_ASSETS/$f ]] || return 1; done
}
# A folder of the caller's own is taken as it is.
if [[ $KUBEBUILDER_ASSETS == "$BIN" ]]; then
	hack/bed/bed build control || say "MISSING: kube-apiserver and etcd could not be built: tests that need an API server skip"
elif ! assets; then
	say "MISSING: kube-apiserver, etcd or kubectl in KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS: tests that need an API server fail"
fi
if ((EUID != 0)); then
	say "MISSING: root: tests that make network namespaces skip"
elif ! command -v apt-get >/dev/null; then
	say "MISSING: apt-get: tests whose tools are not installed skip: ${PACKAGES[*]}"
else
	(install_packages) || say "MISSING: packages could not be installed: tests that need them skip"
fi
