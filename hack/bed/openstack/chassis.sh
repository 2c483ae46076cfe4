# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: the databases of OVN, and chassis, each an Open vSwitch with
# the userspace datapath (the kernel's module is not needed) and an ovn-controller:
# one named `gateway` in the control plane's namespace, one in each node's.
# `binding:host_id` of a port is the chassis name, which is the node's. With
# KURYR_BED_CLOUD=ovs agents of Neutron (agents.sh) are in the place of all of OVN.

NB=unix:$RUN/ovnnb.sock
SB=unix:$RUN/ovnsb.sock

ovs_dir() { echo "$(node_dir "$1")/ovs"; } # CHASSIS: its database and sockets
# chassis_daemon CHASSIS DAEMON: the name by which start and stop know it
chassis_daemon() { echo "$1-$2"; }

# ovs CHASSIS ARGUMENT...: ovs-vsctl there
ovs() {
	local dir
	dir=$(ovs_dir "$1")
	shift
	ovs-vsctl --timeout=30 --db="unix:$dir/db.sock" "$@"
}
nbctl() { ovn-nbctl --timeout=30 --db="$NB" "$@"; }
sbctl() { ovn-sbctl --timeout=30 --db="$SB" "$@"; }

# database FILE SCHEMA: an empty one, unless it exists; whole or not at all.
database() {
	[[ -e $1 ]] && return
	rm -f "$1.new"
	"${inside[@]}" ovsdb-tool create "$1.new" "$2"
	mv "$1.new" "$1"
}

# run_ovs CHASSIS DAEMON ARGUMENT...: ovs-appctl finds it by PID file in that folder.
run_ovs() {
	local chassis=$1 daemon=$2 dir netns=$CP
	shift 2
	[[ $chassis == gateway ]] || netns=$(netns_of "$chassis")
	dir=$(ovs_dir "$chassis")
	start "$chassis-$daemon" "$netns" "${inside[@]}" env OVS_RUNDIR="$dir" OVN_RUNDIR="$dir" \
		"$daemon" "$@" --pidfile="$dir/$daemon.pid"
}

ovn_up() {
	mkdir -p "$CLOUD/ovn"
	database "$CLOUD/ovn/nb.db" /usr/share/ovn/ovn-nb.ovsschema
	database "$CLOUD/ovn/sb.db" /usr/share/ovn/ovn-sb.ovsschema
	run_ovn_nb
	run_ovn_sb
	await 30 "OVN northbound database" nbctl init
	await 30 "OVN southbound database" sbctl init
	run_ovn_northd
}
run_ovn_nb() { run_ovn ovn-nb ovsdb-server "$CLOUD/ovn/nb.db" --remote="p$NB"; }
run_ovn_sb() { run_ovn ovn-sb ovsdb-server "$CLOUD/ovn/sb.db" --remote="p$SB"; }
run_ovn_northd() { run_ovn ovn-northd ovn-northd --ovnnb-db="$NB" --ovnsb-db="$SB"; }
run_ovn() { # NAME COMMAND...
	start "$1" "$CP" "${inside[@]}" env OVS_RUNDIR="$RUN" OVN_RUNDIR="$RUN" "${@:2}" --pidfile="$RUN/$1.pid"
}

# A bridge's own MAC must outlast it: OVS remembers its tunnel neighbours for 15
# minutes and OVN a router's neighbour for ever, and neither asks again.
fixed_mac() { # ADDRESS
	local IFS=.
	# shellcheck disable=SC2046,SC2086
	printf '02:00:%02x:%02x:%02x:%02x' $1
}

# ovsdb_up CHASSIS TUNNEL-ADDRESS KEY=VALUE...: its database with the settings that
# ovn-controller reads there
ovsdb_up() {
	local chassis=$1 dir settings=("${@:3}")
	if [[ $KIND == ovs ]]; then
		settings=()
	else
		settings+=(ovn-remote="$SB" ovn-encap-type=geneve ovn-encap-ip="$2" ovn-bridge-datapath-type=netdev)
	fi
	dir=$(ovs_dir "$chassis")
	mkdir -p "$dir"
	database "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
	run_ovs "$chassis" ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock"
	await 30 "OVS database of $chassis" ovs "$chassis" --no-wait init
	ovs "$chassis" --no-wait set Open_vSwitch . \
		external_ids:system-id="$chassis" external_ids:hostname="$chassis" "${settings[@]/#/external_ids:}"
	# The userspace datapath of 3.1.0 ends now and then by an assertion in its connection
	# tracking (conntrack.c: conn_update_state) once there are load balancers: --monitor
	# starts it again, as the daemon of a distribution would be.
	run_ovs "$chassis" ovs-vswitchd --monitor "unix:$dir/db.sock"
}

# bridge NAME ADDRESS: arguments for `ovs` that make it, with a MAC that follows
bridge() {
	printf '%s\n' -- --may-exist add-br "$1" -- set bridge "$1" datapath_type=netdev \
		other-config:hwaddr="$(fixed_mac "$2")"
}
integration=(--may-exist add-br br-int -- set bridge br-int datapath_type=netdev
	fail-mode=secure other-config:disable-in-band=true)

# address NETNS DEVICE CIDR: on a bridge that ovs-vswitchd is just making
address() {
	await 30 "$2 in $1" ip -n "$1" link show "$2"
	set_address "$1" "$2" "$3"
	ip -n "$1" link set "$2" up
}

# No two chassis may have one tunnel address, and a killed one leaves its record:
# another's with ours would keep this one from being registered.
controller_up() { # CHASSIS ADDRESS
	local other
	for other in $(sbctl --bare --columns=chassis_name find encap ip="$2"); do
		[[ $other == "$1" ]] || sbctl --if-exists chassis-del "$other" -- --if-exists destroy chassis_private "$other"
	done
	run_ovs "$1" ovn-controller "unix:$(ovs_dir "$1")/db.sock"
	await 60 "OVN chassis $1" sbctl get chassis "$1" name
}

# The gateway: br-ex is the way out and the nodes' side of the pods' router, br-phy
# is the switch of the tunnels.
gateway_up() {
	local args settings=(ovn-bridge-mappings=external:br-ex ovn-cms-options=enable-chassis-as-gw)
	ovsdb_up gateway "$TUNNEL_GATEWAY" "${settings[@]}"
	mapfile -t args < <(bridge br-ex "$EXT_GATEWAY"; bridge br-phy "$TUNNEL_GATEWAY")
	ovs gateway "${integration[@]}" "${args[@]}"
	address "$CP" br-ex "$EXT_GATEWAY/${EXT_CIDR#*/}"
	address "$CP" br-phy "$TUNNEL_GATEWAY/24"
	[[ $FAMILIES != dual ]] || address "$CP" br-ex "$EXT_GATEWAY6/${EXT_CIDR6#*/}"
	local cidr # locked: a node that sends more is told so, as no fragment would get through
	for cidr in "$POD_CIDR" "$SERVICE_SUBNET_CIDR"; do
		ip -n "$CP" route replace "$cidr" via "$ROUTER_IP" dev br-ex mtu lock "$POD_MTU"
	done
	for cidr in $POD_CIDR6 $SERVICE_SUBNET_CIDR6; do
		ip -n "$CP" route replace "$cidr" via "$ROUTER_IP6" dev br-ex mtu lock "$POD_MTU"
	done
	tenant_routes
	if [[ $KIND == ovs ]]; then
		agents_up gateway "$TUNNEL_GATEWAY"
		return
	fi
	controller_up gateway "$TUNNEL_GATEWAY"
	# OVN 23.03 writes these to the chassis' other_config only, Neutron 21 reads them in
	# external_ids only: without the copy a router's gateway port ends as binding_failed.
	[[ $RELEASE != zed ]] || sbctl set chassis gateway "${settings[@]/#/external_ids:}"
}

# node_chassis_up NODE: cabled to the gateway's br-phy by a veth pair.
node_chassis_up() {
	local node=$1 netns cable=up-$1 tunnel args
	netns=$(netns_of "$node")
	tunnel=${TUNNEL_GATEWAY%.*}.$((10 + $(node_number "$node")))
	if ! ip -n "$netns" link show uplink >/dev/null 2>&1; then
		ovs gateway --if-exists del-port br-phy "$cable"
		ip -n "$CP" link del "$cable" 2>/dev/null || true
		ip -n "$CP" link add "$cable" type veth peer name uplink netns "$netns"
	fi
	ip -n "$CP" link set "$cable" up
	ip -n "$netns" link set uplink up
	ovs gateway --may-exist add-port br-phy "$cable"
	ovsdb_up "$node" "$tunnel"
	mapfile -t args < <(bridge br-phy "$tunnel")
	ovs "$node" "${integration[@]}" "${args[@]}" -- --may-exist add-port br-phy uplink
	address "$netns" br-phy "$tunnel/24"
	if [[ $KIND == ovs ]]; then agents_up "$node" "$tunnel"; else controller_up "$node" "$tunnel"; fi
	say "chassis $node is up"
}

# chassis_down CHASSIS: its record stays, so that coming back does not flap its ports.
chassis_down() {
	agents_down "$1"
	# Bridges are taps that outlive the process unless it is told to clean up.
	! alive "$1-ovs-vswitchd" ||
		OVS_RUNDIR=$(ovs_dir "$1") ovs-appctl --timeout=5 -t ovs-vswitchd exit --cleanup >/dev/null 2>&1 || true
	stop "$1-ovn-controller" "$1-ovs-vswitchd" "$1-ovsdb-server"
}
