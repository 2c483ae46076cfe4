# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: nodes with a kubelet and a containerd of their own. A node is
# a tree of processes in network, mount, PID, IPC and UTS namespaces of its own,
# and has no pod network and no kube-proxy: these are what is under test.
# To stop a node is to pull its plug: what it had written is there when it starts.

node_dir() { echo "$BED/nodes/$1"; }

# Numbers are given once and kept: addresses follow from them.
node_number() { # NODE
	local file n=1
	file=$(node_dir "$1")/number
	if [[ ! -s $file ]]; then
		mkdir -p "$(node_dir "$1")"
		while grep -qsx "$n" "$BED"/nodes/*/number; do n=$((n + 1)); done
		echo "$n" >"$file"
	fi
	cat "$file"
}
node_ip() { echo "${NODE_CIDR%.*}.$((10 + $(node_number "$1")))"; }
node_ip6() { [[ $FAMILIES != dual ]] || echo "${NODE_CIDR6%/*}$((10 + $(node_number "$1")))"; }

node_network() { # NODE
	local netns peer
	netns=$(netns_of "$1") peer=node$(node_number "$1")
	ensure_netns "$netns"
	if ! ip -n "$netns" link show eth0 >/dev/null 2>&1; then
		ip -n "$CP" link del "$peer" 2>/dev/null || true
		ip -n "$netns" link add eth0 type veth peer name "$peer" netns "$CP"
	fi
	ip -n "$CP" link set "$peer" master nodes up
	ip -n "$netns" addr replace "$(node_ip "$1")/${NODE_CIDR#*/}" dev eth0
	ip -n "$netns" link set eth0 up
	ip -n "$netns" route replace default via "$API_IP"
	nsenter --net="/run/netns/$netns" sysctl -qw net.ipv4.ip_forward=1
	[[ $FAMILIES == dual ]] || return 0
	nsenter --net="/run/netns/$netns" sysctl -qw net.ipv6.conf.all.forwarding=1
	set_address "$netns" eth0 "$(node_ip6 "$1")/${NODE_CIDR6#*/}"
	ip -n "$netns" route replace default via "$API_IP6"
}

# The kubelet wants its --cgroup-root to be there: with version 1 in every
# hierarchy, and a cpuset without CPUs or memory nodes would take no process.
node_cgroups() { # NODE
	local c dir f
	for c in "${CGROUPS[@]}"; do
		mkdir -p "$c/kuryr-bed/nodes/$1"
		for dir in "$c/kuryr-bed" "$c/kuryr-bed/nodes" "$c/kuryr-bed/nodes/$1"; do
			if [[ $c == */cpuset ]]; then
				for f in cpuset.cpus cpuset.mems; do cat "$dir/../$f" >"$dir/$f"; done
			elif [[ -e $c/cgroup.controllers && $c == /sys/fs/cgroup ]]; then # version 2
				echo "+cpu +cpuset +memory +pids" >"$dir/../cgroup.subtree_control"
			fi
		done
	done
}

node_files() { # NODE
	local node
	node=$(node_dir "$1")
	mkdir -p "$node"/{ovs,log,imported,own}
	kubeconfig "kubelet-$1" "/O=system:nodes/CN=system:node:$1"
	# restrict_oom_score_adj: without CAP_SYS_RESOURCE, as in many containers, no
	# process may lower its OOM score, which a sandbox would otherwise be told to.
	cat >"$node/containerd.toml" <<-TOML
		version = 3
		[plugins."io.containerd.cri.v1.images".pinned_images]
		  sandbox = "registry.k8s.io/pause:3.10.2"
		[plugins."io.containerd.cri.v1.runtime"]
		  restrict_oom_score_adj = true
		[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
		  runtime_type = "io.containerd.runc.v2"
	TOML
	# The disk is the machine's: how full it is may not evict a test's pods.
	cat >"$node/kubelet.yaml" <<-YAML
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		failCgroupV1: false
		failSwapOn: false
		cgroupDriver: cgroupfs
		cgroupRoot: /kuryr-bed/nodes/$1
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		authentication: {anonymous: {enabled: false}, x509: {clientCAFile: $PKI/ca.crt}}
		clusterDNS: [$DNS_IP]
		clusterDomain: cluster.local
		imageGCHighThresholdPercent: 100
		evictionHard: {nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
	YAML
}

# node_pid NODE: the node's process 1, as the machine numbers it.
node_pid() {
	local pid
	for pid in $(members "node-$1"); do
		if [[ $(grep -s ^NSpid: "/proc/$pid/status") =~ ^NSpid:[[:space:]]*${pid}[[:space:]]+1$ ]]; then
			echo "$pid"
			return
		fi
	done
	return 1
}

on_node() { # NODE COMMAND...
	local pid
	pid=$(node_pid "$1") || die "node $1 is not up"
	shift
	nsenter --target "$pid" --net --mount --uts --ipc --pid env OVS_RUNDIR=/run/openvswitch "$@"
}

node_up() { # NODE
	local node ip6 began=$SECONDS
	node=$(node_dir "$1")
	node_network "$1"
	ip6=$(node_ip6 "$1")
	node_cgroups "$1"
	node_files "$1"
	start "node-$1" "$(netns_of "$1")" unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc \
		"$HERE/kubernetes/node-init.sh" "$1" "$node" "$BIN" "$(node_ip "$1")${ip6:+,$ip6}" "$PKI/kubelet-$1.kubeconfig"
	await 60 "containerd on $1" node_has_containerd "$1"
	node_images "$1"
	await 120 "kubelet on $1" node_has_kubelet "$1"
	await 60 "node $1 in Kubernetes" kubectl get node "$1"
	say "node $1 is up ($((SECONDS - began)) s)"
}
node_has_containerd() { (on_node "$1" "$BIN/ctr" version); }
# Its own word, since the Node object may be there from before.
node_has_kubelet() { (on_node "$1" curl -fs http://127.0.0.1:10248/healthz); }

node_images() { # NODE
	local tar
	for tar in "$IMAGES"/*.tar; do node_import "$1" "$tar"; done
}
# node_import NODE TAR: unless this very archive is there.
node_import() {
	local seen
	seen=$(node_dir "$1")/imported/$(basename "$2")
	[[ $seen -nt $2 ]] && return
	# shellcheck disable=SC2094
	on_node "$1" "$BIN/ctr" -n k8s.io images import - <"$2" >>"$LOG/node-$1-images.log" 2>&1 || die "importing $2 on $1; see $LOG"
	touch "$seen"
}

# node_down NODE: the kernel ends what was in its PID namespace. Its cgroups are
# empty then; without them gone a container of the same name could not start.
node_down() {
	local c
	kill_hard "node-$1"
	remove_netns "$(netns_of "$1")"
	for c in "${CGROUPS[@]}"; do wait_for 20 remove_cgroup "$c/kuryr-bed/nodes/$1" || say "busy: $c/kuryr-bed/nodes/$1"; done
}
remove_cgroup() {
	[[ ! -d $1 ]] || find "$1" -depth -type d -exec rmdir {} +
}
