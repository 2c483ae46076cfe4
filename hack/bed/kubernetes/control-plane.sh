# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: the node network, and etcd with Kubernetes' control plane.

kubectl() { "$BIN/kubectl" --kubeconfig="$PKI/admin.kubeconfig" "$@"; }

# The namespace of the control plane is also the nodes' router.
network_up() {
	ensure_netns "$CP"
	# A bridge without an address of its own takes a port's, and another one's when
	# that port goes: connections to the API server would stall as a node leaves.
	ip -n "$CP" link show nodes >/dev/null 2>&1 ||
		ip -n "$CP" link add nodes address 02:00:00:00:00:01 type bridge
	local address cidr
	for address in "$API_IP/${NODE_CIDR#*/}" ${API_IP6:+"$API_IP6/${NODE_CIDR6#*/}"}; do set_address "$CP" nodes "$address"; done
	ip -n "$CP" link set nodes up
	in_cp sysctl -qw net.ipv4.ip_forward=1 \
		net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.nodes.send_redirects=0
	[[ $FAMILIES != dual ]] || in_cp sysctl -qw net.ipv6.conf.all.forwarding=1
	if ! ip -n "$CP" link show machine >/dev/null 2>&1; then
		ip link del "$MACHINE_LINK" 2>/dev/null || true
		ip link add "$MACHINE_LINK" type veth peer name machine netns "$CP"
	fi
	ip -n "$CP" link set machine master nodes up
	ip addr replace "$MACHINE_IP/${NODE_CIDR#*/}" dev "$MACHINE_LINK"
	ip link set "$MACHINE_LINK" up
	# For tests that run on the machine; it forwards nothing itself.
	for cidr in "$POD_CIDR" "$SERVICE_SUBNET_CIDR"; do
		ip route replace "$cidr" via "$API_IP" dev "$MACHINE_LINK"
	done
	ip addr replace "$OUTSIDE_IP/32" dev "$MACHINE_LINK"
	ip route replace "$EXT_CIDR" via "$API_IP" dev "$MACHINE_LINK" src "$OUTSIDE_IP"
	ip -n "$CP" route replace "$OUTSIDE_IP" via "$MACHINE_IP" dev nodes
	[[ $FAMILIES == dual ]] || return 0
	ip addr replace "$MACHINE_IP6/${NODE_CIDR6#*/}" dev "$MACHINE_LINK" nodad
	for cidr in "$POD_CIDR6" "$SERVICE_SUBNET_CIDR6" "$EXT_CIDR6"; do
		ip route replace "$cidr" via "$API_IP6" dev "$MACHINE_LINK"
	done
}
network_down() {
	ip link del "$MACHINE_LINK" 2>/dev/null || true
	remove_netns "$CP"
}

api_ready() { kubectl get --raw /readyz; }

control_plane_up() {
	pki_up
	run_etcd
	alive kube-apiserver || rm -f "$LOG"/audit*.log # of another bed
	run_kube_apiserver
	await 120 "API server" api_ready
	run_kube_controller_manager
	run_kube_scheduler
	say "Kubernetes API server is ready"
}

# No fsync: a test bed's etcd need not survive a power cut.
run_etcd() {
	start etcd "$CP" "$BIN/etcd" --data-dir="$ETCD" --unsafe-no-fsync --log-level=warn \
		--listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
		--listen-peer-urls=http://127.0.0.1:2380
}

run_kube_apiserver() {
	start kube-apiserver "$CP" "$BIN/kube-apiserver" \
		--etcd-servers=http://127.0.0.1:2379 \
		--bind-address=0.0.0.0 --advertise-address="$API_IP" --secure-port=6443 \
		--service-cluster-ip-range="$SERVICE_CIDR${SERVICE_CIDR6:+,$SERVICE_CIDR6}" --allow-privileged \
		--audit-policy-file="$HERE/kubernetes/audit.yaml" --audit-log-path="$LOG/audit.log" \
		--audit-log-maxsize=100 --audit-log-maxbackup=4 \
		--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
		--client-ca-file="$PKI/ca.crt" \
		--tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
		--service-account-issuer=https://kubernetes.default.svc.cluster.local \
		--service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
		--kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
		--kubelet-preferred-address-types=InternalIP \
		--requestheader-client-ca-file="$PKI/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy \
		--requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
		--requestheader-username-headers=X-Remote-User --enable-aggregator-routing \
		--proxy-client-cert-file="$PKI/front-proxy.crt" --proxy-client-key-file="$PKI/front-proxy.key"
}

# Left at their defaults, 20 and 50 requests a second, these two would be all that
# a test of many pods measures.
client_flags() { # NAME
	local config=$PKI/$1.kubeconfig
	printf '%s\n' --kubeconfig="$config" --authentication-kubeconfig="$config" \
		--authorization-kubeconfig="$config" --bind-address=127.0.0.1 --leader-elect=false \
		--kube-api-qps=1000 --kube-api-burst=2000
}

run_kube_controller_manager() {
	local flags
	mapfile -t flags < <(client_flags controller-manager)
	start kube-controller-manager "$CP" "$BIN/kube-controller-manager" "${flags[@]}" \
		--service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" \
		--cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
		--use-service-account-credentials
}

run_kube_scheduler() {
	local flags
	mapfile -t flags < <(client_flags scheduler)
	start kube-scheduler "$CP" "$BIN/kube-scheduler" "${flags[@]}"
}
