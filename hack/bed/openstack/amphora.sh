# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: with KURYR_BED_AMPHORA=1 Octavia's provider amphora beside that of
# OVN, as far as no virtual machine is needed. Octavia's API, its database, the message
# bus, the worker with its flows, states and quotas, and the network driver with its
# ports, address pairs and security groups are the real ones. Of virtual machines there
# are only the ports, see octavia-worker.py, and of amphorae nothing: no packet is moved,
# and no heartbeat changes an operating status.

amphora_conf() {
	[[ -z $AMPHORA ]] || octavia_worker_conf >"$ETC/octavia-worker.conf"
}

# The worker reads this after octavia.conf, which alone the API reads. It signs certificates
# for the agents of amphorae, which the noop driver drops: any CA will do.
octavia_worker_conf() {
	cat <<-END
		[controller_worker]
		amphora_driver = amphora_noop_driver
		compute_driver = compute_noop_driver
		network_driver = allowed_address_pairs_driver
		image_driver = image_noop_driver
		volume_driver = volume_noop_driver
		distributor_driver = distributor_noop_driver
		loadbalancer_topology = SINGLE
		client_ca = $PKI/ca.crt
		workers = 1
		event_notifications = false
		[certificates]
		ca_certificate = $PKI/ca.crt
		ca_private_key = $PKI/ca.key
	END
}

amphora_up() {
	[[ -z $AMPHORA ]] || run_octavia_worker
}
run_octavia_worker() {
	[[ -e $ETC/octavia-worker.conf ]] || die "the bed has no octavia-worker: KURYR_BED_AMPHORA=1 $HERE/bed up"
	cp "$HERE/openstack/octavia-worker.py" "$ETC/" # the folder of OpenStack has no sight of this one
	start octavia-worker "$CP" "${inside[@]}" /usr/bin/python3 "$ETC/octavia-worker.py" --config-file "$ETC/octavia.conf" --config-file "$ETC/octavia-worker.conf"
}
