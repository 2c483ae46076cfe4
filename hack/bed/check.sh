# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: proves the bed without Kuryr, by a pod plugged by hand on each
# node. Its ports bear the device owner compute:check; what a check that was broken
# off has left is removed first.

check() {
	local i node failed=0 id=() ip=() port
	login kuryr k8s
	# shellcheck source=/dev/null
	. "$CLOUD/ids"
	uncheck
	for i in 0 1; do
		port=$(check_port "${NODES[i]}")
		id[i]=$(jq -er .port.id <<<"$port") ip[i]=$(jq -er '.port.fixed_ips[0].ip_address' <<<"$port")
		plug "${NODES[i]}" "$port"
	done
	for i in 0 1; do await 30 "ACTIVE port on ${NODES[i]}" port_active "${id[i]}"; done
	say "pods are plugged: ${ip[*]}"
	for i in 0 1; do check_paths "${NODES[i]}" "${NODES[1 - i]}" "${ip[i]}" "${ip[1 - i]}"; done
	uncheck
	((failed == 0)) || die "$failed checks failed"
	say "all is well"
}

check_port() { # NODE
	neutron POST /ports "{\"port\": {\"network_id\": \"$POD_NET\", \"binding:host_id\": \"$1\",
		\"device_owner\": \"compute:check\", \"security_groups\": [\"$POD_SG\"]}}"
}

check_paths() { # NODE OTHER IP OTHER-IP
	local netns node
	node=$(netns_of "$1") netns=$(netns_of "check-$1")
	attempt "pod of $1 to the other pod, ping" in_netns "$netns" ping -c1 -W1 "$4"
	attempt "pod of $1 to the other pod, full packets" in_netns "$netns" ping -c1 -W1 -M "do" -s $((POD_MTU - 28)) "$4"
	attempt "pod of $1 to the other pod, TCP" transfer "$netns" "$(netns_of "check-$2")" "$4"
	attempt "pod of $1 to the API server" in_netns "$netns" curl -fsk --noproxy '*' -m3 "https://$API_IP:6443/readyz"
	attempt "pod of $1 to its node" in_netns "$netns" ping -c1 -W1 "$(node_ip "$1")"
	attempt "node $1 to its pod" in_netns "$node" ping -c1 -W1 "$3"
	attempt "node $1 to the other pod" in_netns "$node" ping -c1 -W1 "$4"
	attempt "node $1 to its pod, TCP" transfer "$node" "$netns" "$3"
	attempt "pod of $1 to the other node, TCP" transfer "$netns" "$(netns_of "$2")" "$(node_ip "$2")"
	attempt "machine to the pod of $1" ping -c1 -W1 "$3"
	attempt "node $1 to Keystone and Neutron" in_netns "$node" curl -fs --noproxy '*' -o /dev/null -m5 "$AUTH_URL" "$NEUTRON_URL"
	attempt "node $1 finds its Open vSwitch" on_node "$1" ovs-vsctl --timeout=3 br-exists br-int
}

# attempt WHAT COMMAND...: three times, since first packets may be lost to ARP.
attempt() {
	local what=$1 _
	shift
	for _ in 1 2 3; do
		if "$@" >/dev/null 2>&1; then
			say "ok      $what"
			return
		fi
	done
	say "FAILED  $what"
	failed=$((failed + 1))
}

in_netns() { nsenter --net="/run/netns/$1" "${@:2}"; }

# transfer FROM-NETNS TO-NETNS ADDRESS: 1 MiB by TCP arrives whole
transfer() {
	local server
	in_netns "$2" timeout 8 /usr/bin/python3 -c 'import socket
s = socket.create_server(("", 8099)); s.settimeout(5); s.accept()[0].sendall(b"x" * 2**20)' &
	server=$!
	sleep 0.3
	# shellcheck disable=SC2016
	[[ $(in_netns "$1" timeout 5 bash -c 'cat </dev/tcp/$0/8099' "$3" | wc -c) == 1048576 ]] || {
		kill "$server" 2>/dev/null
		return 1
	}
	wait "$server"
}

# plug NODE PORT-JSON: what Kuryr does, with a named namespace for the pod.
plug() {
	local node netns id mac ip dev
	node=$(netns_of "$1") netns=$(netns_of "check-$1")
	id=$(jq -r .port.id <<<"$2") mac=$(jq -r .port.mac_address <<<"$2") ip=$(jq -r '.port.fixed_ips[0].ip_address' <<<"$2")
	dev=tap${id:0:11}
	ensure_netns "$netns"
	ip -n "$node" link add "$dev" type veth peer name eth0 netns "$netns"
	ip -n "$node" link set "$dev" up
	ip -n "$netns" link set eth0 address "$mac" mtu "$POD_MTU" up
	ip -n "$netns" addr add "$ip/${POD_CIDR#*/}" dev eth0
	ip -n "$netns" route add default via "$POD_GATEWAY"
	# The userspace datapath reads the veth by a packet socket and sees checksums that
	# are yet to be finished: its connection tracking calls TCP and UDP invalid.
	in_netns "$netns" ethtool -K eth0 tx off >/dev/null
	# Only iface-id matters to OVN; the others are what OpenStack's own agents set.
	ovs "$1" --may-exist add-port br-int "$dev" -- set Interface "$dev" \
		external_ids:iface-id="$id" external_ids:attached-mac="$mac" external_ids:iface-status=active
}

uncheck() {
	local node id
	while read -r id node; do
		[[ -z $node ]] || ovs "$node" --if-exists del-port br-int "tap${id:0:11}"
		neutron DELETE "/ports/$id"
	done < <(neutron GET "/ports?device_owner=compute:check" | jq -r '.ports[] | "\(.id) \(.["binding:host_id"])"')
	for node in "${NODES[@]}"; do remove_netns "$(netns_of "check-$node")"; done
}
