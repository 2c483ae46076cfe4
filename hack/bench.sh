#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# All benchmarks but that of scale (make scale); docs/performance.md says what they measure. Whole executables
# are timed in a network namespace made for it, as root.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export CGO_ENABLED=0

hack/bed/bed build control node >/dev/null # kube-apiserver and etcd; the reference CNI plugins
go test -run '^$' -bench . -skip 'Scale$' -benchmem -timeout 60m "$@" ./internal/...
if ((EUID != 0)); then
	echo "bench.sh: not root: leaving out the benchmarks of whole executables (test/bench)" >&2
	exit
fi
go vet ./test/bench # whatever is to be fetched is, before there is no network
unshare --net sh -c 'ip link set lo up; exec "$@"' sh \
	go test -run '^$' -bench . -benchtime 300x -timeout 10m ./test/bench
