# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: with KURYR_BED_CLOUD=ovs, what is there in OVN's place (ML2/OVS). Each
# chassis has a neutron-openvswitch-agent, with the firewall driver openvswitch, and the
# gateway an L3 agent, whose routers are network namespaces. They hear of Neutron by the
# message bus. No subnet of the bed has DHCP, and there is no metadata: no other agents.
# Without l2population, which left out a tunnel of a new network: README.md.

AGENTS_CONF=$ETC/agents.conf # over neutron.conf, for Neutron and for its agents

agents_conf() {
	cat <<-END
		[DEFAULT]
		service_plugins = router,trunk,qos,port_forwarding,segments,network_segment_range
		transport_url = $RABBIT_URL
		rpc_state_report_workers = 1
		agent_down_time = 30
		l3_ha = false
		router_distributed = false
		[ml2]
		mechanism_drivers = openvswitch
		type_drivers = vxlan,flat,vlan,local
		tenant_network_types = vxlan
		[ml2_type_vxlan]
		vni_ranges = 1:1000
		[oslo_messaging_rabbit]
		heartbeat_in_pthread = false
	END
}

# agent_conf CHASSIS TUNNEL-ADDRESS: of its agents, which run as root and need no sudo.
# ovs_use_veth: ovs-vswitchd loses an internal port that is in another namespace when it
# starts again, and takes up a veth. of_request_timeout: a port that vanishes while the
# agent of 2025.1 sets it up stops the agent for so long (300 s by default).
agent_conf() {
	local section mappings=''
	[[ $1 != gateway ]] || mappings=external:br-ex
	cat <<-END
		[DEFAULT]
		host = $1
		state_path = $CLOUD/neutron-$1
		interface_driver = openvswitch
		ovs_use_veth = true
		agent_mode = legacy
		enable_metadata_proxy = false
		[oslo_concurrency]
		lock_path = $CLOUD/neutron-$1/lock
		[ovs]
		ovsdb_connection = unix:$(ovs_dir "$1")/db.sock
		datapath_type = netdev
		local_ip = $2
		bridge_mappings = $mappings
		of_request_timeout = 20
		[agent]
		tunnel_types = vxlan
		polling_interval = 1
		report_interval = 10
		root_helper =
		root_helper_daemon =
		[securitygroup]
		enable_security_group = true
		enable_ipset = false
		firewall_driver = $(firewall_driver "$1")
	END
	for section in privsep privsep_{dhcp_release,ovs_vsctl,namespace,conntrack,link}; do
		printf '[%s]\nhelper_command = privsep-helper\n' "$section"
	done
}

# firewall_driver CHASSIS: openvswitch, unless somebody has written another in this file,
# to see what it does after `bed stop` and `bed start` of the agent.
firewall_driver() { cat "$CLOUD/firewall-driver-$1" 2>/dev/null || echo openvswitch; }

# agents_up CHASSIS TUNNEL-ADDRESS
agents_up() {
	agent_conf "$@" >"$ETC/agent-$1.conf"
	run_agent "$1" neutron-openvswitch-agent
	[[ $1 != gateway ]] || run_agent gateway neutron-l3-agent
}
run_agent() { # CHASSIS AGENT
	local netns=$CP
	[[ $1 == gateway ]] || netns=$(netns_of "$1")
	mkdir -p "$CLOUD/neutron-$1/lock"
	start "$1-$2" "$netns" "${inside[@]}" env OVS_RUNDIR="$(ovs_dir "$1")" \
		"$2" --config-file "$ETC/neutron.conf" --config-file "$AGENTS_CONF" --config-file "$ETC/agent-$1.conf"
}

# agents_known CHASSIS...: Neutron binds no port to one whose agent has not reported.
agents_known() {
	local agents name
	agents=$(neutron GET "/agents?alive=true&fields=host&fields=binary" | jq -r '.agents[] | "\(.host)-\(.binary)"')
	for name in "${@/%/-neutron-openvswitch-agent}" gateway-neutron-l3-agent; do
		grep -qx "$name" <<<"$agents" || return 1
	done
}

# agents_down CHASSIS
agents_down() {
	stop "$1-neutron-openvswitch-agent" "$1-neutron-l3-agent"
	[[ $1 != gateway ]] || routers_down
}
# The L3 agent leaves its routers' namespaces and their veths to the next one.
routers_down() {
	local netns
	for netns in /run/netns/qrouter-*; do [[ ! -e $netns ]] || remove_netns "$(basename "$netns")"; done
}
