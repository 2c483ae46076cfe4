#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# What does not fit into .ci/run, in full: some hours, with nothing else on the cores.
# Goes on after a failure, prints a summary and stops the test bed at the end.
#   NIGHT_MINUTES   for all together (720); a step for which none are left fails
#   FUZZTIME        for each fuzz target (5m)
#   CHURN           how long pods come and go while Kuryr is killed (10m)
#   OUTAGE          how long parts of the cloud are stopped and killed (20m)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export KURYR_BED=${KURYR_BED:-/var/tmp/kuryr-bed} CHURN=${CHURN:-10m} OUTAGE=${OUTAGE:-20m}
limit=$((${NIGHT_MINUTES:-720} * 60))
# shellcheck source=hack/steps.sh
. hack/steps.sh
steps_begin

step "long tests" 400 make long
step "sweep at every write" 1200 make sweep
step "API server of the oldest Kubernetes" 600 make envtest-oldest
step "nothing is decided by words" 900 make hashed
if ((EUID == 0)); then
	bed_down --wipe
	KEEP=1 step "e2e in full" 2400 make e2e
	# shellcheck disable=SC2016 # the other shell's
	step "churn of namespaces" 3000 bash -euc 'eval "$(hack/bed/bed env)"
		CGO_ENABLED=0 KURYR_E2E=1 KURYR_NAMESPACES=50 KURYR_NAMESPACE_ROUNDS=3 go test -count=1 -timeout=90m -v -run TestNamespaceChurn ./test/e2e'
	# shellcheck disable=SC2016 # the other shell's
	step "churn under fire" 600 bash -euc 'eval "$(hack/bed/bed env)"
		CGO_ENABLED=0 KURYR_E2E=1 KURYR_CHURN=$CHURN go test -count=1 -timeout=60m -v -run TestChurnUnderFire ./test/e2e'
	# shellcheck disable=SC2016 # the other shell's
	step "outage of the cloud" 1700 bash -euc 'eval "$(hack/bed/bed env)"
		CGO_ENABLED=0 KURYR_E2E=1 KURYR_OUTAGE=$OUTAGE go test -count=1 -timeout=90m -v -run "^TestCloudOutage$" ./test/e2e'
	bed_down --wipe
	step "IPv4 and IPv6" 2400 make e2e-dual
	bed_down --wipe
	step "ML2/OVS" 2400 make e2e-ovs
	bed_down --wipe
	step "Octavia's amphora" 3600 make amphora
	bed_down --wipe
	for what in e2e e2e-dual e2e-ovs amphora; do
		KURYR_BED_RELEASE=zed step "OpenStack Zed: $what" 2400 make "$what"
		bed_down --wipe
	done
else
	skip "e2e, churn under fire, outage of the cloud, IPv4 and IPv6, ML2/OVS, Octavia's amphora, all these on OpenStack Zed" "not root"
fi
if command -v "${CC:-gcc}" >/dev/null; then
	step "race detector in full" 1200 make race CUT= TESTFLAGS="-timeout=90m -parallel=4"
else
	skip "race detector" "no C compiler"
fi
step "fuzz" 1800 make fuzz FUZZTIME="${FUZZTIME:-5m}"
step "benchmarks" 600 make bench
