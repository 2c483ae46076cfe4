#!/bin/sh
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# What the virtual machine does, as a node of the bed's Kubernetes: Kuryr's daemon
# runs, and kuryr-cni is called for each pod as a container runtime would. Each step
# is told on the console; the next begins when somebody connects to port 7000.
# shellcheck shell=dash disable=SC1091,SC2154,SC2317
. /plan # node, address, gateway, mtu, pods (NAMESPACE/NAME/UID/IP/TYPE), targets
# ip and ping are meant with their paths: the shell has others of these names built in.
failed=0

try() { # WHAT COMMAND...
	local what=$1
	shift
	if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failed=1; fi
}

# pod N NAME is a field of $pod.
pod() { echo "$pod" | cut -d/ -f"$1"; }

cni() { # COMMAND
	local rc=0
	echo '{"cniVersion": "1.0.0", "name": "kuryr", "type": "kuryr-cni"}' |
		CNI_COMMAND=$1 CNI_CONTAINERID=sandbox-$(pod 2) CNI_NETNS=/run/netns/$(pod 2) CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
			CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=$(pod 1);K8S_POD_NAME=$(pod 2);K8S_POD_UID=$(pod 3)" \
			/opt/cni/bin/kuryr-cni || rc=$?
	[ "$1" != ADD ] || echo # after the result
	return "$rc"
}

await() { # FILE
	local i=0
	while [ ! -e "$1" ] && [ $((i += 1)) -le 120 ]; do sleep 1; done
	[ -e "$1" ]
}

step() {
	echo "step: $1"
	nc -l -p 7000 </dev/null >/dev/null
}

inside() { /bin/ip netns exec "$(pod 2)" "$@"; }

# Up to 20 s: first packets may be lost while addresses are resolved.
answers() { /bin/ping -q -n -c1 -i0.5 -w20 "$1" >/dev/null; } # IP
answers_inside() { inside /bin/ping -q -n -c1 -i0.5 -w20 "$1" >/dev/null; }
fetches() { [ "$(inside timeout 60 wget -q -O - "http://$1:8080/full" | wc -c)" = 262144 ]; } # full frames
empty() { [ -z "$(inside /bin/ip -o link show type "$(pod 5)")" ]; }

traffic() {
	for pod in $pods; do
		from=$(pod 2) type=$(pod 5)
		for other in $pods; do
			[ "$other" != "$pod" ] || continue
			try "$from to $(pod=$other pod 2)" answers_inside "$(pod=$other pod 4)"
			try "TCP from $from to $(pod=$other pod 2)" fetches "$(pod=$other pod 4)"
		done
		for target in $targets; do try "$from to $target" answers_inside "$target"; done
		# Linux keeps a macvlan device and the interface below it apart.
		[ "$type" != macvlan ] || continue
		try "$from to its node" answers_inside "${address%/*}"
		try "the node to $from" answers "$(pod 4)"
	done
}

/bin/ip link set eth0 mtu "$mtu" up
/bin/ip address add "$address" dev eth0
/bin/ip route add default via "$gateway"
mkdir -p /run/netns /www
head -c 262144 /dev/zero >/www/full
/kuryr daemon --config=/kuryr.yaml --kubeconfig=/kubeconfig --node-name="$node" \
	--cni-bin-dir=/opt/cni/bin --cni-conf-dir=/etc/cni/net.d &
daemon=$!
try "the daemon is ready" await /etc/cni/net.d/10-kuryr.conflist
for pod in $pods; do
	/bin/ip netns add "$(pod 2)"
	try "ADD $(pod 2)" cni ADD
	inside /bin/ip -d link show type "$(pod 5)"
	inside /bin/ip link set lo up
	inside httpd -p 8080 -h /www
done
step plugged
traffic
step reached
for pod in $pods; do
	try "DEL $(pod 2)" cni DEL
	try "nothing is left in $(pod 2)" empty
done
step unplugged
kill $daemon
try "the daemon ends well" wait $daemon
exit $failed
