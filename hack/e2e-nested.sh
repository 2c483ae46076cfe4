#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Ports of nodes that are virtual machines, on a kernel that has what they need:
# boots Debian's own for clouds, and
#   1. runs the tests of internal/plug in it, those with VLAN devices among them,
#   2. if a test bed with a real OpenStack is up, test/nested: the machine is a node of
#      the bed's Kubernetes, its interface the parent of a trunk, and Kuryr, which is
#      deployed for that, serves its pods.
# It leaves the bed up. As `e2e-nested.sh boot JOB FOLDER [QEMU-OPTION...]` it boots a
# machine that runs JOB, with the files of FOLDER in /.
set -euo pipefail
HERE=$(dirname "$(readlink -f "$0")")
# shellcheck source=e2e-nested/lib.sh
. "$HERE/e2e-nested/lib.sh"

prepare() {
	install_packages
	mkdir -p "$NESTED"
	unpack_kernel
	make_system
	choose_accel
}

if [[ ${1:-} == boot ]]; then
	prepare >&2
	pack_system "$2" "$3"
	boot 120 "$NESTED/boot.log" "${@:4}"
	exit
fi

cd "$HERE/.."
export CGO_ENABLED=0
prepare
say "tests of internal/plug in a virtual machine"
rm -rf "$NESTED/files" && mkdir "$NESTED/files"
go test -c -o "$NESTED/files/plug.test" ./internal/plug
# Emulated, only what no other kernel here can run: the rest doubles the time.
kinds=.
[[ $ACCEL == kvm ]] || kinds=^vlan
pack_system "cd /tmp && export KURYR_NEED_VLAN=1 && for tests in VLAN 'Nested/$kinds'; do
	/plug.test -test.v -test.timeout=30m -test.run \"\$tests\" || exit
done" "$NESTED/files"
boot 180 "$NESTED/plug.log"
say "passed: $(grep -c '^--- PASS' "$NESTED/plug.log") tests, skipped: $(grep -c '^--- SKIP' "$NESTED/plug.log"), console: $NESTED/plug.log"

bed=hack/bed/bed
if ! { $bed status | grep '^neutron ' && settings=$($bed env); } >/dev/null 2>&1; then
	say "LEFT OUT: test/nested, a trunk of the real Neutron: no bed is up (make bed-up)"
	exit
fi
eval "$settings"
[[ $KURYR_BED_KIND == real ]] || { say "LEFT OUT: test/nested: the bed's OpenStack is simulated, and moves no packets"; exit; }
say "Kuryr on the bed"
hack/demo/deploy.sh
say "test/nested on the bed"
export ACCEL KURYR_E2E=1
go test -count=1 -timeout=30m -v ./test/nested
