# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: its verbs.

# exclusive: one command that changes the bed at a time. What a killed one has left
# running in the background holds the lock until it is through.
exclusive() {
	mkdir -p "$BED" "$LOG" "$RUN"
	exec 9>"$RUN/lock"
	flock --nonblock 9 || {
		say "waiting for another bed command to end"
		flock --timeout 300 9 || die "another bed command holds $RUN/lock"
	}
}

verb_install() {
	known_release
	install_packages
	has_system || return 0
	((EUID == 0)) || die "must run as root to make $SYSTEM"
	exclusive
	install_system
}

verb_build() {
	exclusive
	(($#)) || set -- "${ALL_SETS[@]}"
	progress_begins "building what is missing or old of: $*"
	build "$@"
	progress_ends
	say "built: $BIN, $IMAGES"
}

verb_up() {
	require_machine
	exclusive
	known_release
	known_families
	one_cloud
	same_families
	same_release
	enough_nodes
	echo "$AMPHORA" >"$BED/amphora"
	build control cluster node images
	[[ $KIND != sim ]] || build_simulator
	network_up
	local node
	for node in "${NODES[@]}"; do node_network "$node"; done
	if [[ $KIND == sim ]]; then
		together kubernetes_half simulator_half
		simulator_settle
	else
		together kubernetes_half openstack_half
		cloud_settle
	fi
	say "up: eval \"\$($HERE/bed env)\""
}
# The two halves need nothing of each other but the namespaces, made before.
kubernetes_half() {
	control_plane_up
	together "${NODES[@]/#/node_up }"
}
openstack_half() {
	cloud_up
	gateway_up
	together "${NODES[@]/#/node_chassis_up }"
}

# one_cloud: the bed has one or the other, and somebody may be at work on it.
one_cloud() {
	local before
	before=$(cat "$BED/cloud" 2>/dev/null || echo "$KIND")
	if [[ $before != "$KIND" ]]; then
		[[ -z $(daemons '*') ]] || die "the bed is up with KURYR_BED_CLOUD=$before: end that first, $HERE/bed down"
		not_mounted
		rm -rf --one-file-system "$BED/nodes" # what they know is of the other cluster
	fi
	echo "$KIND" >"$BED/cloud"
	[[ $KIND != sim ]] || simulator_is_new
}

known_families() {
	case $FAMILIES in
	ipv4) ;;
	dual) [[ $KIND == real ]] || die "KURYR_BED_FAMILIES=dual is for the real cloud: the simulator's nodes move IPv4 only, and the agents' routers would need radvd" ;;
	*) die "KURYR_BED_FAMILIES is ipv4 or dual, not $FAMILIES" ;;
	esac
}

# same_families: what the bed stores is of one kind.
same_families() {
	local before
	before=$(cat "$BED/families" 2>/dev/null || echo ipv4)
	[[ $before == "$FAMILIES" || ! -d $PKI ]] ||
		die "the bed was made with KURYR_BED_FAMILIES=$before: set that again, or forget the bed, $HERE/bed down --wipe"
	echo "$FAMILIES" >"$BED/families"
}

# same_release: a database does not go back to an older release. A bed that has one and names none is Zed's.
same_release() {
	local before=$RELEASE
	[[ $KIND != sim ]] || return 0
	[[ ! -d $BED/openstack && ! -d $BED/ovs ]] || before=$(cat "$BED/release" 2>/dev/null || echo zed)
	[[ $before == "$RELEASE" ]] ||
		die "the bed was made with KURYR_BED_RELEASE=$before: set that again, or forget the bed, $HERE/bed down --wipe"
	! has_system || system_made || die "OpenStack $RELEASE is not in $SYSTEM, or not whole: KURYR_BED_RELEASE=$RELEASE $HERE/bed install"
	echo "$RELEASE" >"$BED/release"
}

# enough_nodes: one that is left out would stay in Kubernetes, and its chassis in OVN.
enough_nodes() {
	local before
	[[ $NODE_COUNT =~ ^[1-9]$ ]] || die "KURYR_BED_NODES is a number from 1 to 9, not $NODE_COUNT"
	before=$(cat "$BED/node-count" 2>/dev/null || echo 0)
	((before <= NODE_COUNT)) || [[ $KIND == sim || ! -d $PKI ]] ||
		die "the bed has $before nodes, more than KURYR_BED_NODES=$NODE_COUNT: forget it first, $HERE/bed down --wipe"
	[[ $KIND == sim ]] || echo "$NODE_COUNT" >"$BED/node-count"
}

verb_down() {
	((EUID == 0)) || die "must run as root"
	[[ -z ${1:-} || $1 == --wipe ]] || die "bed down [--wipe]"
	exclusive
	everything_down
	[[ ${1:-} != --wipe ]] || wipe
	say "down"
}
everything_down() {
	local chassis c left netns
	together stop_nodes stop_control_plane stop_apis
	for chassis in "${NODES[@]}" gateway; do chassis_down "$chassis" & done
	wait
	cloud_down
	mapfile -t left < <(daemons '*')
	((${#left[@]} == 0)) || kill_hard "${left[@]}"
	for netns in /run/netns/"$CP"-*; do [[ ! -e $netns ]] || remove_netns "$(basename "$netns")"; done
	network_down
	for c in "${CGROUPS[@]}"; do wait_for 10 remove_cgroup "$c/kuryr-bed" || say "busy: $c/kuryr-bed"; done
}
stop_nodes() {
	local name
	for name in $(daemons 'node-*'); do node_down "${name#node-}"; done
}
stop_control_plane() { stop kube-scheduler kube-controller-manager kube-apiserver && stop etcd; }
stop_apis() { stop "${CLOUD_APIS[@]}"; }

not_mounted() { ! grep -q " $BED/" /proc/self/mountinfo || die "something is mounted below $BED"; }

# The node's files may hold mounts if a node still lives: then this must not go on.
wipe() {
	local dir
	not_mounted
	for dir in "$BED"/*; do
		case $dir in
		"$BIN" | "$IMAGES" | "$BED"/system-*) ;;
		*) rm -rf --one-file-system "$dir" ;;
		esac
	done
}

verb_status() {
	local name pids
	for name in $(daemons '*'); do
		mapfile -t pids < <(members "$name")
		printf '%-26s %d process%s\n' "$name" "${#pids[@]}" "$( ((${#pids[@]} == 1)) || echo es)"
	done
	! alive kube-apiserver || kubectl get nodes -o wide 2>/dev/null || true
	[[ -n $(daemons '*') ]] || echo "down"
}

verb_env() {
	[[ -s $CLOUD/ids ]] || die "the bed has not been up yet"
	local none="${NO_PROXY:+$NO_PROXY,}$NODE_CIDR,$API_IP,$POD_CIDR,$SERVICE_CIDR,$EXT_CIDR" name
	[[ $FAMILIES != dual ]] || none+=,$NODE_CIDR6,$POD_CIDR6,$SERVICE_CIDR6,$EXT_CIDR6
	cat <<-END
		export KURYR_BED=$BED KUBECONFIG=$PKI/admin.kubeconfig KUBEBUILDER_ASSETS=$BIN
		export KURYR_BED_COMMAND=$HERE/bed KURYR_BED_NETNS=$CP KUBERNETES_API=$API_IP:6443
		export OS_CLIENT_CONFIG_FILE=$CLOUD/clouds.yaml OS_CLOUD=kuryr
		export KURYR_BED_KIND=$KIND KURYR_BED_FAMILIES=$FAMILIES KURYR_BED_RELEASE=$RELEASE KURYR_BED_NODE_NAMES="${NODES[*]}"
		export NO_PROXY=$none no_proxy=$none
		export POD_CIDR=$POD_CIDR SERVICE_CIDR=$SERVICE_CIDR NODE_CIDR=$NODE_CIDR EXT_CIDR=$EXT_CIDR POD_MTU=$POD_MTU
	END
	[[ $FAMILIES != dual ]] || echo "export POD_CIDR6=$POD_CIDR6 SERVICE_CIDR6=$SERVICE_CIDR6 NODE_CIDR6=$NODE_CIDR6 API_IP6=$API_IP6 EXT_GATEWAY6=$EXT_GATEWAY6"
	sed 's/^/export /' "$CLOUD/ids"
	[[ $KIND != sim ]] || echo "export OPENSTACK_SIM=$SIM_URL"
	[[ $KIND == sim ]] || echo "export OVS_RUNDIR=$(ovs_dir gateway)"
	[[ $KIND != real ]] || echo "export OVN_NB_DB=$NB OVN_SB_DB=$SB"
	[[ $KIND == sim ]] || for name in "${NODES[@]}"; do echo "export OVS_${name^^}=unix:$(ovs_dir "$name")/db.sock"; done
	# shellcheck disable=SC2016
	echo "case :\$PATH: in *:$BIN:*) ;; *) export PATH=$BIN:\$PATH ;; esac"
	# A user's CA bundle would take the place of what a Python client is told to trust.
	echo "unset REQUESTS_CA_BUNDLE"
}

verb_exec() {
	[[ -n ${1:-} ]] || die "bed exec NODE [COMMAND...]"
	local node=$1
	shift
	(($#)) || set -- bash
	on_node "$node" "$@"
}

verb_load() {
	(($#)) || die "bed load FILE.tar..."
	local tar
	for tar; do
		[[ -f $tar ]] || die "no file $tar"
		together "${NODES[@]/#/node_load }"
	done
}
# Each reads the archive, the variable tar of its caller, for itself.
node_load() { # NODE
	local said
	said=$(on_node "$1" "$BIN/ctr" -n k8s.io images import - <"$tar") || die "$1 does not take $tar"
	say "$1: ${said%%$'\n'*}"
}

verb_cloud() {
	[[ ${1:-} == reset ]] || die "bed cloud reset"
	exclusive
	cloud_reset
}

is_node() { [[ " ${NODES[*]} " == *" $1 "* ]]; }

verb_stop() {
	local name
	exclusive
	for name; do
		if is_node "$name"; then
			chassis_down "$name"
			node_down "$name"
		else
			[[ -d $TRACK/$name ]] || die "no part named $name; bed status names them"
			stop "$name"
		fi
	done
}

verb_kill() {
	local name
	exclusive
	for name; do
		[[ -d $TRACK/$name ]] || die "no part named $name; bed status names them"
		kill_hard "$name"
	done
}

verb_start() {
	local name
	exclusive
	for name; do start_one "$name"; done
}
start_one() {
	local chassis=${1%%-*} daemon=${1#*-}
	if is_node "$1"; then
		node_up "$1"
		if [[ $KIND == sim ]]; then simulator_node_up "$1"; else node_chassis_up "$1"; fi
	elif [[ $chassis == gateway ]]; then
		gateway_up
	elif is_node "$chassis" && [[ $daemon != "$1" ]]; then
		node_chassis_up "$chassis"
	elif declare -F "run_${1//-/_}" >/dev/null; then
		"run_${1//-/_}"
		ready "$1"
	else
		die "no part named $1; bed status names them"
	fi
}
ready() {
	case $1 in
	kube-apiserver) await 120 "API server" api_ready ;;
	keystone) await 120 Keystone answers "$AUTH_URL" ;;
	neutron) await 120 Neutron answers "$NEUTRON_URL/" ;;
	octavia) await 120 Octavia answers "$OCTAVIA_URL/" ;;
	rabbitmq) await 120 "message bus" rabbitmq_ready ;;
	mysql) await 120 "database server" sql "select 1" ;;
	*) await 10 "$1" alive "$1" ;;
	esac
}

verb_e2e() {
	build e2e
	"$BIN/e2e.test" --provider=skeleton --kubeconfig="$PKI/admin.kubeconfig" \
		--ginkgo.v --ginkgo.no-color "$@"
}

verb_check() {
	((EUID == 0)) || die "must run as root"
	check
}
