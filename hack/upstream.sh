#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Upstream Kubernetes' own end-to-end tests on the running test bed with Kuryr:
#   upstream.sh               those that need a pod network and no Service
#   upstream.sh conformance   all of [sig-network] [Conformance]: which pass, which not
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
eval "$(hack/bed/bed env)"

pods='\[sig-network\] Networking Granular Checks: Pods .*(http|udp) .*\[Conformance\]|\[sig-node\] Pods should .*\[Conformance\]'
case ${1:-pods} in
pods) focus=$pods ;;
conformance) focus='\[sig-network\].*\[Conformance\]' ;;
*)
	echo "upstream.sh: nothing or conformance?" >&2
	exit 2
	;;
esac
report=$KURYR_BED/log/upstream-${1:-pods}
status=0
# The suite's own wait for nodes and system pods is for other clusters than this.
e2e.test --provider=skeleton --kubeconfig="$KUBECONFIG" --ginkgo.focus="$focus" --ginkgo.no-color \
	--allowed-not-ready-nodes=0 --minStartupPods=0 --ginkgo.timeout=30m \
	--ginkgo.json-report="$report.json" >"$report.log" 2>&1 || status=$?
jq -r '.[].SpecReports[] | select(.State != "skipped" and .LeafNodeType == "It")
	| "\(.State)  \((.RunTime / 1e9 * 10 | round) / 10) s  \(.ContainerHierarchyTexts | join(" ")) \(.LeafNodeText)"' "$report.json" | sort
jq -r '[.[].SpecReports[] | select(.State != "skipped" and .LeafNodeType == "It") | .State] | "\(map(select(. == "passed")) | length) passed, \(map(select(. != "passed")) | length) failed"' "$report.json"
((status == 0)) || echo "upstream.sh: the suite ended with $status: see $report.log" >&2
[[ ${1:-pods} == conformance ]] || exit "$status"
