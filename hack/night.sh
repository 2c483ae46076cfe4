#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# What does not fit into .ci/run, in full: some hours, with nothing else on the cores.
# Goes on after a failure, prints a summary and stops the test bed at the end.
#   NIGHT_MINUTES   for all together (720); a step for which none are left fails
#   FUZZTIME        for each fuzz target (5m)
#   CHURN           how long pods come and go while Kuryr is killed (10m)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export KURYR_BED=${KURYR_BED:-/var/tmp/kuryr-bed} CHURN=${CHURN:-10m}
limit=$((${NIGHT_MINUTES:-720} * 60))
# shellcheck source=hack/steps.sh
. hack/steps.sh
steps_begin

step "sweep at every write" 600 make sweep
if ((EUID == 0)); then
	bed_down --wipe
	KEEP=1 step "e2e in full" 2400 make e2e
	# shellcheck disable=SC2016 # the other shell's
	step "churn under fire" 600 bash -euc 'eval "$(hack/bed/bed env)"
		CGO_ENABLED=0 KURYR_E2E=1 KURYR_CHURN=$CHURN go test -count=1 -timeout=60m -v -run TestChurnUnderFire ./test/e2e'
	bed_down
else
	skip "e2e, churn under fire" "not root"
fi
if command -v "${CC:-gcc}" >/dev/null; then
	step "race detector in full" 1200 make race CUT= TESTFLAGS="-timeout=90m -parallel=4"
else
	skip "race detector" "no C compiler"
fi
step "fuzz" 1800 make fuzz FUZZTIME="${FUZZTIME:-5m}"
step "benchmarks" 600 make bench
