#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Kuryr at work, from nothing: demo.sh up [real|sim] | down
#   up    a real Kubernetes of two nodes and a real OpenStack, Kuryr deployed on
#         them, pods with Neutron ports from warm pools and a Service before them. Again: reuses what is there.
#         With sim the simulator in the place of OpenStack, and one node.
#   down  stops all of it; what was built stays for the next time.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
bed=hack/bed/bed
# shellcheck source=hack/progress.sh
. hack/progress.sh

up() {
	export KURYR_BED_CLOUD=$1
	local packages="and OpenStack in a folder, 1.4 GB"
	[[ ${KURYR_BED_RELEASE:-} != zed ]] || packages="OpenStack Zed among them"
	[[ $1 == real ]] || packages="80 MB"
	[[ -e ${KURYR_BED:-/var/tmp/kuryr-bed}/bin/kubelet ]] ||
		echo "The first run installs Debian packages ($packages) and builds Kubernetes: some 12 minutes on two cores."
	$bed install
	$bed build control cluster node images
	$bed up
	# Five free ports on each node, before its first pod: what Kuryr is for.
	KURYR_POOLS='{min: 5, warmUp: true}' hack/demo/deploy.sh
	eval "$($bed env)"
	progress_begins "compiling the program that shows Kuryr at work"
	CGO_ENABLED=0 go build -o bin/demo ./hack/demo
	progress_ends
	bin/demo
	echo
	# Errors are looked for again after five minutes.
	kubectl wait --for=condition=Ready kuryrcluster/default --timeout=330s >/dev/null || {
		kubectl describe kuryrcluster default >&2
		exit 1
	}
	kubectl get kuryrclusters
	cat <<TEXT

It is yours now:
  eval "\$($PWD/hack/bed/bed env)"             sets KUBECONFIG, OS_CLOUD and the PATH
  kubectl get kuryrports,kuryrportpools,kuryrloadbalancers -A   what Kuryr keeps in Kubernetes
  kubectl -n kuryr-demo get pods -o wide
  kubectl -n kuryr-demo scale deployment/demo --replicas=10     the pools are refilled behind it
  kubectl get kuryrportpools -w
$(cloud_commands)
  kubectl -n kuryr-system logs deployment/kuryr-controller
Stop it with: make demo-down
What was built stays for the next time, in ${KURYR_BED:-/var/tmp/kuryr-bed}.
TEXT
}

# What to look at in the cloud. The openstack command is on the machine if its
# packages are.
cloud_commands() {
	[[ $KURYR_BED_CLOUD == real ]] ||
		echo "  openstack-sim report                        what it was asked, and what is there"
	! command -v openstack >/dev/null || echo "  openstack port list --device-owner compute:kuryr; openstack loadbalancer list"
}

case ${1:-} in
up)
	case ${2:-real} in
	real | sim) up "${2:-real}" ;;
	*)
		echo "demo.sh: CLOUD=real or CLOUD=sim, not ${2}" >&2
		exit 2
		;;
	esac
	;;
down) $bed down ;;
*)
	echo "demo.sh: up or down?" >&2
	exit 2
	;;
esac
