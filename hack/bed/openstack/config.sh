# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: the services' configuration, written at every start, so that a
# changed setting needs no more than `bed stop` and `bed start`.

ETC=$CLOUD/etc
MYSQL_SOCKET=$RUN/mysql.sock

config_up() {
	mkdir -p "$ETC/policy.d" "$CLOUD"/{neutron,lock}
	keystone_conf >"$ETC/keystone.conf"
	neutron_conf >"$ETC/neutron.conf"
	octavia_conf >"$ETC/octavia.conf"
	[[ $KIND != ovs ]] || agents_conf >"$AGENTS_CONF"
	amphora_conf
	clouds_yaml >"$CLOUD/clouds.yaml"
}

database_url() { echo "mysql+pymysql://openstack:$PASSWORD@localhost/$1?unix_socket=$MYSQL_SOCKET&charset=utf8"; }

# credentials USER: how a service checks tokens and speaks to the others
credentials() {
	cat <<-END
		auth_url = $AUTH_URL
		auth_type = password
		username = $1
		password = $PASSWORD
		project_name = service
		user_domain_id = default
		project_domain_id = default
		region_name = RegionOne
	END
}

keystone_conf() {
	cat <<-END
		[DEFAULT]
		use_stderr = true
		[database]
		connection = $(database_url keystone)
		[token]
		provider = fernet
		expiration = 86400
		[fernet_tokens]
		key_repository = $ETC/fernet-keys
		[credential]
		key_repository = $ETC/credential-keys
		[identity]
		password_hash_rounds = 4
		[cache]
		enabled = true
		# Not oslo_cache.dict, which gives out what it keeps: a role that was shown once has links then,
		# and an answer with that role breaks the schema of application credentials.
		backend = dogpile.cache.memory_pickle
		[oslo_messaging_notifications]
		driver = noop
	END
}

# OVN needs no agents and so no message bus: transport_url leads nowhere. There is
# no DHCP either, and no metadata: addresses are given to pods by Kuryr. Where there are
# agents, agents.sh writes another file over this one.
neutron_conf() {
	cat <<-END
		[DEFAULT]
		bind_host = $API_IP
		bind_port = ${NEUTRON_URL##*:}
		host = gateway
		state_path = $CLOUD/neutron
		api_paste_config = /etc/neutron/api-paste.ini
		auth_strategy = keystone
		core_plugin = ml2
		service_plugins = ovn-router,trunk,qos,port_forwarding,segments,network_segment_range
		api_workers = $NEUTRON_WORKERS
		rpc_workers = 1
		rpc_state_report_workers = 0
		transport_url = fake:/
		allow_overlapping_ips = true
		notify_nova_on_port_status_changes = false
		notify_nova_on_port_data_changes = false
		dns_domain = openstacklocal.
		vlan_transparent = false
		global_physnet_mtu = 1500
		max_allowed_address_pair = 50
		use_stderr = true
		[database]
		connection = $(database_url neutron)
		max_pool_size = 10
		max_overflow = 20
		[keystone_authtoken]
		www_authenticate_uri = $AUTH_URL
		$(credentials neutron)
		[oslo_concurrency]
		lock_path = $CLOUD/lock
		[oslo_messaging_notifications]
		driver = noop
		[oslo_policy]
		policy_dirs = $ETC/policy.d
		[quotas]
		default_quota = -1
		quota_network = 100
		quota_subnet = 100
		quota_port = 500
		quota_router = 100
		quota_floatingip = 50
		quota_security_group = 100
		quota_security_group_rule = 1000
		[ml2]
		mechanism_drivers = ovn
		type_drivers = geneve,flat,vlan,local
		tenant_network_types = geneve
		extension_drivers = port_security,qos,dns_domain_ports
		overlay_ip_version = 4
		[ml2_type_geneve]
		vni_ranges = 1:1000
		max_header_size = 38
		[ml2_type_flat]
		flat_networks = external
		[ml2_type_vlan]
		network_vlan_ranges = external:100:199
		[securitygroup]
		enable_security_group = true
		[ovn]
		ovn_nb_connection = $NB
		ovn_sb_connection = $SB
		ovn_l3_scheduler = leastloaded
		ovn_metadata_enabled = false
		enable_distributed_floating_ip = false
	END
}

octavia_conf() {
	local bus=fake:/ providers="ovn:Octavia OVN driver"
	[[ -z $AMPHORA ]] || bus=$RABBIT_URL providers+=", amphora:Octavia Amphora driver"
	cat <<-END
		[DEFAULT]
		transport_url = $bus
		use_stderr = true
		[api_settings]
		bind_host = $API_IP
		bind_port = ${OCTAVIA_URL##*:}
		api_base_uri = $OCTAVIA_URL
		auth_strategy = keystone
		enabled_provider_drivers = $providers
		default_provider_driver = ovn
		[database]
		connection = $(database_url octavia)
		[keystone_authtoken]
		www_authenticate_uri = $AUTH_URL
		$(credentials octavia)
		[service_auth]
		$(credentials octavia)
		# Without credentials of its own Octavia 2025.1 copies them from [service_auth] at the first
		# request, and two first requests at once leave half a copy: 500 until it is started again.
		[neutron]
		endpoint = $NEUTRON_URL
		$(credentials octavia)
		[driver_agent]
		enabled_provider_agents = ovn
		[oslo_concurrency]
		lock_path = $CLOUD/lock
		[oslo_messaging]
		topic = octavia
		[oslo_policy]
		policy_dirs = $ETC/policy.d
		[ovn]
		ovn_nb_connection = $NB
		ovn_sb_connection = $SB
	END
}

# For clients; see bootstrap.py for who is who.
clouds_yaml() {
	local pair
	echo "clouds:"
	for pair in admin:admin kuryr:k8s tenant:k8s tenant-{a:tenant-a,b:tenant-b,c:tenant-c}; do
		cat <<-END
			  ${pair%:*}:
			    auth:
			      auth_url: $AUTH_URL
			      username: ${pair%:*}
			      password: $PASSWORD
			      project_name: ${pair#*:}
			      user_domain_id: default
			      project_domain_id: default
			    region_name: RegionOne
			    interface: public
			    identity_api_version: 3
		END
	done
}
