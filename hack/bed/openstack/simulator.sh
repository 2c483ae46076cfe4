# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: the project's simulator in the place of OpenStack. It moves no
# packet: the node's Linux bridge joins its pods, and the node is their router.

build_simulator() { (cd "$HERE/../../openstacksim" && CGO_ENABLED=0 go build -o "$BIN/openstack-sim" ./cmd/openstack-sim); }

# The simulator keeps its state in memory. With a new one everything that
# Kubernetes knows is of a cloud that is no more, so it is forgotten too.
simulator_is_new() {
	alive openstack-sim && return
	stop_nodes
	stop_control_plane
	rm -rf "$CLOUD" "$BED/nodes/${NODES[0]}/layer/var/lib/upper/kuryr"
}

simulator_half() {
	mkdir -p "$CLOUD"
	run_openstack_sim
	await 10 "answer of the simulator" answers "$AUTH_URL"
}
run_openstack_sim() {
	start openstack-sim "$CP" "$BIN/openstack-sim" serve --listen "${SIM_URL#http://}" --release "$RELEASE" \
		--write-clouds "$CLOUD/clouds.yaml" --hosts "$(IFS=,; echo "${NODES[*]}")"
}

simulator_settle() {
	local node
	networks_up
	for node in "${NODES[@]}"; do simulator_node_up "$node"; done
}

# simulator_node_up NODE: the bridge that Kuryr is told to plug pods into, with
# the pods' gateway on it.
simulator_node_up() {
	local netns
	netns=$(netns_of "$1")
	ip -n "$netns" link show kuryr >/dev/null 2>&1 || ip -n "$netns" link add kuryr type bridge
	ip -n "$netns" addr replace "$POD_GATEWAY/${POD_CIDR#*/}" dev kuryr
	ip -n "$netns" link set kuryr mtu "$POD_MTU" up
	ip -n "$CP" route replace "$POD_CIDR" via "$(node_ip "$1")"
}
