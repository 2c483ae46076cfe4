#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# The tests on a real Kubernetes and a real OpenStack: brings both up, deploys
# Kuryr, and runs
#   1. the contract of internal/sdn on the real Neutron, and the exchanges recorded
#      for the simulator (openstacksim/internal/recorded), whether they still hold:
#      not with SHORT=1,
#   2. a sample of the crash sweep (docs/crash-sweep.md) on the real Neutron and Octavia;
#      KURYR_SWEEP_POINTS says of how many writes of Services (20),
#   3. test/e2e; then, if all of it ran, whether Kuryr has used each permission that it has,
#   4. upstream Kubernetes' own conformance tests of networks and pods,
#   5. three minutes in which parts of the cloud and of Kubernetes are stopped and killed.
# With SHORT=1 less of each, in some 35 minutes on two cores in place of 70. PARTS (contract
# sweep test upstream outage), TESTS and PART choose of these: hack/parts.sh.
# It takes the bed down at the end, unless KEEP=1.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
bed=hack/bed/bed
# shellcheck source=hack/parts.sh
. hack/parts.sh
step() { printf '\n%(%H:%M:%S)T  == %s\n' -1 "$*"; }

step "test bed"
$bed install
$bed build control cluster node images e2e
trap '[[ -n ${KEEP:-} ]] || $bed down' EXIT
$bed up
eval "$($bed env)"
export CGO_ENABLED=0 KURYR_E2E=1
short=() contract=(./internal/openstack github.com/kuryr-go/kuryr/openstacksim/internal/recorded) upstream=usual
if [[ -n ${SHORT:-} ]]; then
	short=(-short) upstream=sample
	# test/e2e makes the requests of pods and networks, and recorded exchanges change with a release of OpenStack.
	contract=(-skip '^TestContract(OfNetworks)?Real$' ./internal/openstack)
	export KURYR_SWEEP_POINTS=${KURYR_SWEEP_POINTS:-5}
fi

if wanted contract; then
	step "contract on the real OpenStack"
	go test -count=1 -timeout=30m -run Real "${contract[@]}"
fi
if wanted sweep; then
	step "crash sweep on the real OpenStack"
	go test -count=1 -timeout=30m -v "${short[@]}" -run 'TestPoolSweepReal|TestServicesSweepReal' ./internal/controller
fi
wanted test || wanted upstream || wanted outage || exit 0

# OVN's agent of Octavia (3.0.0) no longer hears of floating IPs after the hundreds of
# load balancers of what was before: hack/bed/README.md.
$bed stop octavia-driver-agent
$bed start octavia-driver-agent

step "Kuryr on the bed"
hack/demo/deploy.sh

if wanted test; then
	step "test/e2e"
	go test -count=1 -timeout=45m -v "${short[@]}" -run "$(tests_of ./test/e2e)" -skip '^(TestCloudOutage|TestPermissionsAreUsed)$' ./test/e2e
	# After all others: only a whole run uses all permissions.
	step "permissions"
	whole=1
	[[ -z ${SHORT:-}${TESTS:-}${PART:-} && $KURYR_BED_KIND == real ]] || whole=
	KURYR_E2E_WHOLE=$whole go test -count=1 -v -run '^TestPermissionsAreUsed$' ./test/e2e
fi
if wanted upstream; then
	step "upstream's tests"
	hack/upstream.sh $upstream
fi
wanted outage || exit 0

# Last: what the cloud's own parts do not get over is in nobody's way. Their faults are
# not Kuryr's: a run in which they logged one (hack/bed/README.md, Traps) is repeated.
outage() { go test -count=1 -timeout=40m -v -run '^TestCloudOutage$' ./test/e2e 2>&1 | tee "$log"; }
log=$(mktemp)
$bed stop octavia-driver-agent
$bed start octavia-driver-agent
step "outage of the cloud"
if ! outage; then
	grep "the bed's own fault" "$log" || exit 1
	step "outage of the cloud, once more: the bed's own fault, above"
	outage
fi
rm "$log"
