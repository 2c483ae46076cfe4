# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Sourced by `bed`: where things lie, the plan of the networks, and how a
# daemon is started, found again and stopped.

BED=${KURYR_BED:-/var/tmp/kuryr-bed}
# Which cloud: real; ovs for the same with Neutron's own agents in OVN's place and
# without Octavia; or sim for the project's simulator, which needs no packages of
# OpenStack and has one node. Those that make the bed are told by the environment, all
# others by what was made.
KIND=${KURYR_BED_CLOUD:-real}
case ${VERB:-} in
install | build | up) ;;
*) KIND=$(cat "$BED/cloud" 2>/dev/null || echo "$KIND") ;;
esac
# Which IP families: ipv4, or dual for IPv4 and IPv6 everywhere. Only `up` asks.
FAMILIES=${KURYR_BED_FAMILIES:-ipv4}
[[ ${VERB:-} == up ]] || FAMILIES=$(cat "$BED/families" 2>/dev/null || echo ipv4)
# Which release of OpenStack (openstack/release.sh), and how many nodes. Only those that
# make the bed ask. A bed without the first file is of before there was a choice.
RELEASE=${KURYR_BED_RELEASE:-2025.1}
case ${VERB:-} in
install | build | up) ;;
*) [[ $KIND == sim ]] || RELEASE=$(cat "$BED/release" 2>/dev/null || echo zed) ;;
esac
# has_system: OpenStack is not the machine's own packages, but those in a folder.
has_system() { [[ $KIND != sim && $RELEASE != zed ]]; }
NODE_COUNT=$(cat "$BED/node-count" 2>/dev/null || echo 2)
[[ ${VERB:-} != up || $KIND == sim ]] || NODE_COUNT=${KURYR_BED_NODES:-$NODE_COUNT}
mapfile -t NODES < <(seq -f n%g "$NODE_COUNT" 2>/dev/null)
NEUTRON_WORKERS=${KURYR_BED_NEUTRON_WORKERS:-2}
# Whether Octavia's OVN provider tells OVN of session affinity of TCP, which it does not as released.
AFFINITY=${KURYR_BED_AFFINITY:-}
[[ $AFFINITY != 0 ]] || AFFINITY=
# Whether Octavia has the provider amphora, too. Only `up` asks, and `install`.
AMPHORA=${KURYR_BED_AMPHORA:-}
case ${VERB:-} in
install | up) [[ $AMPHORA != 0 ]] || AMPHORA= ;;
*) AMPHORA=$(cat "$BED/amphora" 2>/dev/null || true) ;;
esac
[[ $KIND == real ]] || AMPHORA= # others have no OVN, or no Octavia of their own

BIN=$BED/bin       # what was built
IMAGES=$BED/images # container images, as archives
PKI=$BED/pki       # keys, certificates and kubeconfigs
CLOUD=$BED/openstack
ETCD=$BED/etcd
LOG=$BED/log
RUN=$BED/run # sockets and locks

# The control plane, the OpenStack APIs and the gateway chassis live in a network
# namespace of their own and each node in another, so that nothing here meets the
# machine's interfaces, ports and firewall. The machine has one interface, a veth pair.
CP=kuryr-bed
MACHINE_LINK=kuryr-bed
netns_of() { echo "$CP-$1"; } # NODE

NODE_CIDR=172.30.0.0/24 # node N is .10+N
API_IP=172.30.0.1       # kube-apiserver, Keystone, Neutron, Octavia; the nodes' router
MACHINE_IP=172.30.0.254
OUTSIDE_IP=172.29.0.1 # the machine's towards floating IPs: no client of the nodes' prefix
# Cluster IPs are in the first half of their subnet in Neutron. The second half is
# Neutron's own to give away, the router's interface included: no Service gets such an address.
SERVICE_CIDR=10.96.0.0/16
SERVICE_SUBNET_CIDR=10.96.0.0/15 SERVICE_POOL=10.97.0.1-10.97.255.253 SERVICE_GATEWAY=10.97.255.254
KUBERNETES_IP=10.96.0.1 DNS_IP=10.96.0.10
POD_CIDR=10.128.0.0/16 POD_GATEWAY=10.128.0.1
POD_MTU=1442                # 1500 less geneve
EXT_CIDR=172.24.4.0/24      # the flat network on br-ex
EXT_GATEWAY=172.24.4.1      # br-ex itself, in the control plane's namespace
ROUTER_IP=172.24.4.3        # the pods' router
TUNNEL_GATEWAY=172.31.250.1 # geneve end points: the gateway's; node N is .10+N
# The same of IPv6, empty unless the bed is dual: what loops over the networks and
# their addresses finds none then. Kubernetes takes no more than 2^20 cluster IPs.
NODE_CIDR6='' API_IP6='' MACHINE_IP6='' POD_CIDR6='' POD_GATEWAY6='' DNS_IP6=''
SERVICE_CIDR6='' SERVICE_SUBNET_CIDR6='' SERVICE_POOL6='' SERVICE_GATEWAY6='' EXT_CIDR6='' EXT_GATEWAY6='' ROUTER_IP6=''
if [[ $FAMILIES == dual ]]; then
	NODE_CIDR6=fd00:30::/64 API_IP6=fd00:30::1 MACHINE_IP6=fd00:30::254
	SERVICE_CIDR6=fd00:96::/108 DNS_IP6=fd00:96::a
	SERVICE_SUBNET_CIDR6=fd00:96::/64 SERVICE_POOL6=fd00:96::8000:0:0:1-fd00:96::8000:0:0:ffff SERVICE_GATEWAY6=fd00:96::ffff:0:0:1
	POD_CIDR6=fd00:128::/64 POD_GATEWAY6=fd00:128::1
	EXT_CIDR6=fd00:24::/64 EXT_GATEWAY6=fd00:24::1 ROUTER_IP6=fd00:24::3
fi
if [[ $KIND == ovs ]]; then
	CLOUD=$BED/ovs ETCD=$BED/ovs/etcd
	POD_MTU=1450 # 1500 less vxlan
fi
AUTH_URL=http://$API_IP:5000/v3
NEUTRON_URL=http://$API_IP:9696
OCTAVIA_URL=http://$API_IP:9876
if [[ $KIND == sim ]]; then
	NODES=(n1)
	CLOUD=$BED/sim ETCD=$BED/sim/etcd
	SIM_URL=http://$API_IP:5000
	AUTH_URL=$SIM_URL/identity/v3
	NEUTRON_URL=$SIM_URL/networking
	OCTAVIA_URL=$SIM_URL/load-balancer
fi
PASSWORD=secret # of every user: only this machine can reach the services

BED_STARTED=${EPOCHREALTIME/./}
say() {
	local us=$((${EPOCHREALTIME/./} - BED_STARTED))
	printf '%6d.%01d s  %s\n' $((us / 1000000)) $((us / 100000 % 10)) "$*"
}
die() {
	say "ERROR: $*" >&2
	exit 1
}

# wait_for SECONDS COMMAND...: whether COMMAND succeeds within that time.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}
# await SECONDS WHAT COMMAND...: the same, but giving up ends the command.
await() {
	local seconds=$1 what=$2
	shift 2
	wait_for "$seconds" "$@" || die "no $what after $seconds s; see $LOG"
}
not() { ! "$@"; }

# together COMMAND...: runs COMMANDs, each split at spaces, at once; fails if one of
# them does. Not to be called where errors are ignored, as before ||: there the
# commands, too, would go on after an error.
together() {
	local command pids=() pid rc=0
	for command; do
		$command &
		pids+=("$!")
	done
	for pid in "${pids[@]}"; do wait "$pid" || rc=1; done
	return "$rc"
}

# Daemons are found by control group, not by PID file: a group holds the daemon
# with all its children, cannot point to a stranger's process, and is there even
# when the command that started the daemon was killed a moment later.
if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
	CGROUPS=(/sys/fs/cgroup) TRACK=/sys/fs/cgroup/kuryr-bed/run # version 2
else
	CGROUPS=(/sys/fs/cgroup/*/) TRACK=/sys/fs/cgroup/pids/kuryr-bed/run
	CGROUPS=("${CGROUPS[@]%/}")
fi

members() { # NAME...: PIDs
	local name
	for name; do cat "$TRACK/$name/cgroup.procs" 2>/dev/null || true; done
}
gone() { [[ -z $(members "$@") ]]; }
# main_pid NAME: the process that was started, the leader of its session. Children
# that have lost it may go on for a while, but do not make a daemon.
main_pid() {
	local pid stat
	for pid in $(members "$1"); do
		{ stat=$(<"/proc/$pid/stat"); } 2>/dev/null || continue
		read -r _ _ _ stat _ <<<"${stat##*) }"
		[[ $stat != "$pid" ]] || {
			echo "$pid"
			return
		}
	done
	return 1
}
alive() { main_pid "$1" >/dev/null; }
daemons() { # PATTERN: the names of those of which there is something
	local dir
	for dir in "$TRACK"/$1/; do
		dir=$(basename "$dir")
		gone "$dir" || echo "$dir"
	done
}

# start NAME NETNS COMMAND...: runs COMMAND as daemon NAME unless it runs already.
# It gets a clean environment: proxy and CA settings of a user's shell would turn
# the OpenStack clients inside the services to the wrong place. One that runs in a
# namespace of that name which is no more is replaced.
start() {
	local name=$1 netns=$2 pid
	shift 2
	! pid=$(main_pid "$name") || [[ ! /proc/$pid/ns/net -ef /run/netns/$netns ]] || return 0
	kill_hard "$name"
	mkdir -p "$TRACK/$name" "$LOG"
	(
		echo "$BASHPID" >"$TRACK/$name/cgroup.procs"
		exec 9>&- # the lock of `bed`
		# With a seed OpenStack's sets have one order, and so its messages and choices.
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONHASHSEED=0 \
			nsenter --net="/run/netns/$netns" setsid "$@"
	) </dev/null >>"$LOG/$name.log" 2>&1 &
}

# stop NAME...: ends daemons with their children, politely for at most 5 s.
stop() {
	local pids
	pids=$(members "$@")
	[[ -n $pids ]] || return 0
	# shellcheck disable=SC2086
	kill -TERM $pids 2>/dev/null || true
	wait_for 5 gone "$@" || kill_hard "$@"
}
kill_hard() { # NAME...
	local pids
	pids=$(members "$@")
	# shellcheck disable=SC2086
	[[ -z $pids ]] || kill -KILL $pids 2>/dev/null || true
	wait_for 20 gone "$@" || die "cannot kill: $*"
}
# set_address NETNS DEVICE CIDR: an IPv6 address can be used at once, since nobody else
# has it.
set_address() {
	local options=()
	[[ $3 != *:* ]] || options=(nodad)
	ip -n "$1" addr replace "$3" dev "$2" "${options[@]}"
}
in_cp() { nsenter --net="/run/netns/$CP" "$@"; }

# netns_usable NETNS: a command killed half-way leaves a file that is no namespace.
netns_usable() { nsenter --net="/run/netns/$1" true 2>/dev/null; }
ensure_netns() {
	netns_usable "$1" || {
		remove_netns "$1"
		ip netns add "$1"
	}
	ip -n "$1" link set lo up
}
remove_netns() {
	ip netns del "$1" 2>/dev/null || rm -f "/run/netns/$1"
}
