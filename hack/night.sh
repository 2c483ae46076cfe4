#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# What .ci/run does not do each time, in slices of at most some twenty minutes on two
# cores with nothing else on them. .ci/run does one of them, in turns.
#   night.sh            all slices: many hours
#   night.sh NUMBER...  these
#   night.sh list       their numbers and names
#   night.sh turn N     the number of the slice whose turn it is after N commits
# Goes on after a failure, prints a summary and stops the test bed at the end.
#   NIGHT_MINUTES   for all together (1200); a slice for which no time is left fails
#   FUZZTIME        for each fuzz target (30s)
#   CHURN, OUTAGE   how long pods come and go while Kuryr is killed, and how long parts
#                   of the cloud are stopped and killed (10m)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export KURYR_BED=${KURYR_BED:-/var/tmp/kuryr-bed}
limit=$((${NIGHT_MINUTES:-1200} * 60))
churn=${CHURN:-10m} outage=${OUTAGE:-10m} fuzz=${FUZZTIME:-30s}
# shellcheck source=hack/steps.sh
. hack/steps.sh

names=() commands=()
slice() { # NAME COMMAND: a command of the shell, as text
	names+=("$1")
	commands+=("$2")
}

slice "long tests" "make long"
slice "API server of the oldest Kubernetes" "make envtest-oldest"
slice "nothing is decided by words" "make hashed"
slice "race detector, controller" "make race CORE=./internal/controller CUT='-short -skip WhileWritesMeetTheirFate'"
slice "race detector, sweeps" "KURYR_SWEEP=few make race CORE=./internal/controller CUT='-short -run WhileWritesMeetTheirFate'"
slice "race detector, all else" "make race CORE=\"\$(go list ./api/... ./cmd/... ./internal/... | grep -v '/internal/controller\$' | paste -sd' ') github.com/kuryr-go/kuryr/openstacksim/...\""
slice "controllers stopped 200 times" "make stops"
slice "sweep at every write: Services" "make sweep SWEEPS='Service|Release|SourceRanges'"
slice "sweep at every write: pods, namespaces, tenants" "make sweep SWEEPS='Pods|Pool|Namespaces|Tenants'"
for mode in ActivePassive Sharded; do
	slice "sweep with two controllers: $mode, pods, Services" "make sweep SWEEPS=$mode SCENARIOS='pods|pool|Service.*'"
	slice "sweep with two controllers: $mode, all else" "make sweep SWEEPS=$mode SCENARIOS='source.ranges|namespace|modes|tenants'"
done
many="KURYR_BED_NODES=4 KURYR_CONTROLLERS=3 KURYR_ACTIVE=0"
slice "three controllers that share, outage of the cloud" "$many PARTS=outage KURYR_OUTAGE=$outage make e2e"
slice "three controllers that share, churn under fire" "$many PARTS=test TESTS=TestChurnUnderFire KURYR_CHURN=$churn make e2e"
slice "replicas on four nodes" "KURYR_BED_NODES=4 PARTS=test TESTS='TestReplicas|TestReplicaMore|TestForgedTable|TestKuryrPodsDeleted|TestControllerOutside' make e2e"
slice "fuzz" "make fuzz FUZZTIME=$fuzz"
slice "model, schedules 1 to 25,000" "make model MODEL=25000"
slice "model, schedules 25,001 to 50,000" "make model MODEL=25000 SEED=25001"
slice "benchmarks" "make bench"
slice "a cluster of 500 nodes" "KURYR_SCALE=2 make scale" # of 1,000: make scale, some 40 minutes
for release in 2025.1 zed; do
	on="KURYR_BED_RELEASE=$release"
	slice "contract and recorded exchanges, $release" "$on PARTS=contract make e2e"
	slice "crash sweep on the real cloud, $release" "$on PARTS=sweep KURYR_SWEEP_POINTS=10 make e2e"
	for part in 1/3 2/3 3/3; do
		slice "test/e2e $part, $release" "$on PARTS=test PART=$part make e2e"
	done
	slice "upstream's tests, $release" "$on PARTS=upstream make e2e"
	slice "outage of the cloud, $release" "$on PARTS=outage KURYR_OUTAGE=$outage make e2e"
	slice "churn under fire, $release" "$on PARTS=test TESTS=TestChurnUnderFire KURYR_CHURN=$churn make e2e"
	slice "churn of namespaces, $release" "$on PARTS=test TESTS=TestNamespaceChurn KURYR_NAMESPACES=20 make e2e"
	slice "IPv4 and IPv6, $release" "$on PARTS=test make e2e-dual"
	slice "IPv4 and IPv6, upstream's tests, $release" "$on PARTS=upstream make e2e-dual"
	for part in 1/3 2/3 3/3; do
		slice "ML2/OVS $part, $release" "$on PART=$part make e2e-ovs"
	done
	slice "Octavia's amphora: contract, recorded exchanges, $release" "$on PARTS='contract recorded' make amphora"
	slice "Octavia's amphora: crash sweep, $release" "$on PARTS=sweep KURYR_SWEEP_POINTS=4 make amphora"
done

case ${1:-} in
list)
	for i in "${!names[@]}"; do printf '%3d  %s\n' $((i + 1)) "${names[i]}"; done
	exit
	;;
turn)
	echo $((${2:?night.sh turn N} % ${#names[@]} + 1))
	exit
	;;
esac
(($# > 0)) || mapfile -t all < <(seq ${#names[@]})
(($# == 0)) || all=("$@")
for n in "${all[@]}"; do
	[[ $n =~ ^[1-9][0-9]*$ ]] && ((n <= ${#names[@]})) ||
		{ echo "night.sh: there is no slice $n: night.sh list tells them" >&2; exit 2; }
done
steps_begin
for n in "${all[@]}"; do
	command=${commands[n - 1]}
	if ((EUID != 0)) && [[ $command == *" make e2e"* || $command == *" make amphora"* ]]; then
		skip "${names[n - 1]}" "not root"
	elif [[ $command == *"make race"* ]] && ! command -v "${CC:-gcc}" >/dev/null; then
		skip "${names[n - 1]}" "no C compiler"
	else
		((EUID != 0)) || bed_down --wipe
		step "${names[n - 1]}" 60 bash -c "$command"
	fi
done
