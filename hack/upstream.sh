#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Upstream Kubernetes' own end-to-end tests on the running test bed with Kuryr:
#   upstream.sh               the conformance tests of networks and pods that are to
#                             pass: docs/conformance.md says which are not, and why
#   upstream.sh sample        of these a few, in two or three minutes
#   upstream.sh conformance   all of [sig-network] [Conformance]: which pass, which not
#   upstream.sh focus REGEX   those whose names match
#   upstream.sh dual          those of dual stack, on a bed of that kind: hack/e2e-dual.sh
#   upstream.sh affinity      those of session affinity
#   upstream.sh all           all of [sig-network], for hours; continues
#                             a run that was stopped, and prints a table (upstream-all.sh)
# No OVN provider that was tried keeps session affinity of TCP as released. For conformance, affinity and all
# that of the bed is patched, and other lists leave these tests out.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
hack/bed/bed build e2e
eval "$(hack/bed/bed env)"

focus='\[sig-network\].*\[Conformance\]' skip='' no_affinity='session affinity'
case ${1:-usual} in
usual)
	focus+='|\[sig-node\] Pods should .*\[Conformance\]'
	skip=$no_affinity
	;;
sample)
	focus='(provide DNS for services|from ExternalName to NodePort|serve multiport endpoints|HostPort'
	focus+='|EndpointSlices for Pods matching|node-pod communication: udp|Pods should get a host IP).*\[Conformance\]'
	;;
conformance | all) ;;
affinity) focus='\[sig-network\].*session affinity.*\[Conformance\]' ;;
dual)
	[[ $KURYR_BED_FAMILIES == dual ]] || { echo "upstream.sh: the bed is not dual: hack/e2e-dual.sh brings one up" >&2; exit 2; }
	focus='\[Feature:IPv6DualStack\]' skip="$no_affinity|endpoints using hostNetwork" # docs/ipv6.md says why
	[[ -e /proc/net/sctp ]] || skip+='|sctp' # the nodes have the machine's kernel
	;;
focus) focus=${2:?upstream.sh focus REGEX} ;;
*)
	echo "upstream.sh: nothing, sample, conformance, focus REGEX, dual, affinity or all?" >&2
	exit 2
	;;
esac
affinity() { # 1, or nothing
	local _ # what Octavia is at work on would stay PENDING, above or below the load balancers
	for _ in {1..60}; do
		openstack loadbalancer list -f value -c provisioning_status | grep -q PENDING ||
			kubectl get klb -A -o jsonpath='{.items[*].status.conditions[?(@.type=="Progressing")].status}' | grep -q True || break
		sleep 2
	done
	hack/bed/bed stop octavia
	KURYR_BED_AFFINITY=${1:-} hack/bed/bed start octavia
}
case ${1:-usual} in
conformance | affinity | all)
	before=${KURYR_BED_AFFINITY:-}
	affinity 1
	trap 'affinity "$before"' EXIT
	;;
esac
[[ ${1:-} != all ]] || { hack/upstream-all.sh; exit; }

# progress prints each test as it ends, from what the suite says; not those that skip themselves.
progress() {
	local line name='' total='?' n=0
	while IFS= read -r line; do
		case $line in
		'Will run '*)
			read -r _ _ total _ <<<"$line"
			echo "running $total tests; log: $report.log"
			;;
		'[sig-'*) name=$line ;;
		'• ['*)
			n=$((n + 1))
			echo "$n of $total  ${line#* }  $name"
			;;
		esac
	done
}

report=$KURYR_BED/log/upstream-${1:-usual}
status=0
# The suite's own wait for nodes and system pods is for other clusters than this.
e2e.test --provider=skeleton --kubeconfig="$KUBECONFIG" --ginkgo.focus="$focus" ${skip:+--ginkgo.skip="$skip"} --ginkgo.no-color \
	--allowed-not-ready-nodes=0 --minStartupPods=0 --ginkgo.timeout=45m \
	--ginkgo.v --ginkgo.silence-skips --ginkgo.json-report="$report.json" 2>&1 | tee "$report.log" | progress || status=$?
echo
jq -r '.[].SpecReports[] | select(.State != "skipped" and .LeafNodeType == "It")
	| "\(.State)  \((.RunTime / 1e9 * 10 | round) / 10) s  \(.ContainerHierarchyTexts | join(" ")) \(.LeafNodeText)"' "$report.json" | sort
jq -r '[.[].SpecReports[] | select(.State != "skipped" and .LeafNodeType == "It") | .State] | "\(map(select(. == "passed")) | length) passed, \(map(select(. != "passed")) | length) failed"' "$report.json"
((status == 0)) || echo "upstream.sh: the suite ended with $status: see $report.log" >&2
[[ ${1:-usual} == conformance ]] || exit "$status"
