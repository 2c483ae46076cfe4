#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Upstream's whole list of [sig-network], each test by a process of its own,
# KURYR_UPSTREAM_JOBS at a time (1; most wait most of their time):
#   upstream-all.sh        runs those that have no result yet; `hack/upstream.sh all` calls it
#   upstream-all.sh table  the results so far, as a table for docs/conformance.md
# The results are lines `state seconds name reason`, split by tabs, in
# $KURYR_BED/log/upstream-all.tsv. A run that was stopped continues there; to repeat
# a test, delete its line; to repeat all, the file.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
eval "$(hack/bed/bed env)"
results=$KURYR_BED/log/upstream-all.tsv

# What cannot run, and why: the first expression that matches a name counts.
left_out=(
	'\[Feature:NetworkPolicy\]' 'Kuryr does not enforce NetworkPolicies'
	'\[Disruptive\]' 'stops parts of the cluster by SSH, which the bed does not have'
	'Internet connection' 'the bed has no route to the Internet'
	'KubeProxy|kube-proxy' "kube-proxy's own; the bed has none"
	'\[Provider:GCE\]' 'for one provider only'
	'\[Feature:OffByDefault\]' 'the API server has this feature off'
	'DNS configMap nameserver' "the bed's CoreDNS forwards nothing, and its settings are no ConfigMap"
	'\[Feature:PerformanceDNS\]' 'a load test: thousands of Services'
)
[[ $KURYR_BED_FAMILIES == dual ]] || left_out+=('IPv6DualStack' 'the bed has IPv4 only: hack/e2e-dual.sh')
[[ -e /proc/net/sctp ]] || left_out+=('SCTPConnectivity' 'the kernel has no SCTP')

reason_left_out() { # NAME
	local i
	for ((i = 0; i < ${#left_out[@]}; i += 2)); do
		[[ ! $1 =~ ${left_out[i]} ]] || { echo "${left_out[i + 1]}" && return; }
	done
}

suite() { # REPORT FLAG...
	# The suite's own wait for nodes and system pods is for other clusters than this.
	e2e.test --provider=skeleton --kubeconfig="$KUBECONFIG" --ginkgo.no-color --allowed-not-ready-nodes=0 --minStartupPods=0 \
		--ginkgo.json-report="$1.json" "${@:2}" >"$1.log" 2>&1
}

list() {
	local report=$KURYR_BED/log/upstream-list
	suite "$report" --ginkgo.dry-run --ginkgo.focus='\[sig-network\]' || { echo "upstream-all.sh: cannot list: see $report.log" >&2; exit 1; }
	jq -r '.[].SpecReports[] | select(.State != "skipped" and .LeafNodeType == "It")
		| "\(.ContainerHierarchyTexts | join(" ")) \(.LeafNodeText)"' "$report.json" | sort
}

record() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$results"; } # STATE SECONDS NAME REASON

run() { # NUMBER NAME
	local report=$KURYR_BED/log/upstream-all-$1 focus said
	shift
	focus=$(jq -nr --arg name "$1" '$name | gsub("(?<c>[][(){}.*+?^$|\\\\])"; "\\\(.c)") + "$"')
	rm -f "$report.json"
	suite "$report" --ginkgo.focus="$focus" --ginkgo.timeout=20m || true
	said=$(jq -r --arg name "$1" '[.[].SpecReports[] | select("\(.ContainerHierarchyTexts // [] | join(" ")) \(.LeafNodeText)" == $name)][0]
		| [.State, (.RunTime / 1e9 | round), $name, (.Failure.Message // "" | split("\n")[0] | .[0:200])] | @tsv' "$report.json") || said=
	[[ -n $said ]] || { echo "upstream-all.sh: no result of \"$1\": see $report.log" >&2; exit 1; }
	[[ $said != passed* && $said != skipped* ]] || rm -f "$report.log" # the log of a failure is kept
	rm -f "$report.json"
	echo "$said" | tee -a "$results"
}

# room waits until fewer tests than N run.
room() { # N
	while (($(jobs -rp | wc -l) >= $1)); do wait -n; done
}

run_all() {
	local name names reason number=0 most=${KURYR_UPSTREAM_JOBS:-1}
	names=$(list)
	mkdir -p "$KURYR_BED/log"
	touch "$results"
	while IFS= read -r name <&3; do
		number=$((number + 1))
		! grep -qxF -- "$name" <(cut -f3 "$results") || continue
		reason=$(reason_left_out "$name")
		if [[ -n $reason ]]; then
			record "left out" 0 "$name" "$reason"
		elif [[ $name == *'[Serial]'* ]]; then
			room 1
			run "$number" "$name"
		else
			room "$most"
			run "$number" "$name" &
		fi
	done 3<<<"$names"
	room 1
}

table() {
	jq -Rrs '
		def rows: split("\n") | map(select(. != "") | split("\t") | {state: .[0], seconds: (.[1] | tonumber), name: .[2], reason: (.[3] // "")});
		def cell: gsub("\\|"; "\\|");
		rows as $all
		| ($all | map(select(.state != "passed" and .state != "skipped" and .state != "left out"))) as $failed
		| "| | tests | minutes |", "|---|---|---|",
		  (("passed", "skipped", "left out") as $s | ($all | map(select(.state == $s))) | "| \($s) | \(length) | \((map(.seconds) | add // 0) / 60 | round) |"),
		  "| failed | \($failed | length) | \(($failed | map(.seconds) | add // 0) / 60 | round) |", "",
		  "| failed | seconds | says |", "|---|---|---|",
		  ($failed[] | "| \(.name | cell) | \(.seconds) | \(.reason | cell) |"), "",
		  "| left out, or skipped by itself | tests |", "|---|---|",
		  ($all | map(select(.state == "left out" or .state == "skipped")) | group_by(.reason)[] | "| \(.[0].reason | cell) | \(length) |")
	' "$results"
}

case ${1:-} in
table) table ;;
'')
	run_all
	table
	;;
*)
	echo "upstream-all.sh: nothing, or table?" >&2
	exit 2
	;;
esac
