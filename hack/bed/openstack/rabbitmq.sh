# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Sourced by `bed`: the message bus, for clouds whose services have agents or workers.
# It is none of the bed's own cloud, where all are told by OVN's databases.

RABBIT_PACKAGES=(rabbitmq-server)
RABBIT_ADDRESS=$API_IP:5672
RABBIT_URL=rabbit://openstack:$PASSWORD@$RABBIT_ADDRESS/

rabbitmq_up() {
	run_rabbitmq
	await 120 "message bus" rabbitmq_ready
}

# Its port is opened last.
rabbitmq_ready() { in_cp bash -c "exec 3<>/dev/tcp/${RABBIT_ADDRESS/://}"; }

# Erlang's own daemon of node names is a child and ends with it. Neither is to be met
# from outside of the namespace's loopback, but for the port of the bus; and schedulers
# that wait do not spin, as they do by default, on cores that others want.
# The user is made from the configuration with the empty database.
run_rabbitmq() {
	local dir=$CLOUD/rabbitmq
	mkdir -p "$dir"
	cat >"$dir/rabbitmq.conf" <<-END
		listeners.tcp.1 = $RABBIT_ADDRESS
		loopback_users = none
		default_user = openstack
		default_pass = $PASSWORD
		vm_memory_high_watermark.absolute = 256MB
		disk_free_limit.absolute = 50MB
		log.console = true
		log.console.level = info
		log.file = false
	END
	start rabbitmq "$CP" "${inside[@]}" env HOME="$dir" ERL_EPMD_ADDRESS=127.0.0.1 \
		RABBITMQ_NODENAME=kuryr@localhost RABBITMQ_CONF_ENV_FILE="$dir/none" \
		RABBITMQ_CONFIG_FILE="$dir/rabbitmq.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$dir/plugins" \
		RABBITMQ_MNESIA_BASE="$dir/mnesia" RABBITMQ_LOG_BASE="$dir" RABBITMQ_PID_FILE="$dir/pid" \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}" \
		/usr/lib/rabbitmq/bin/rabbitmq-server
}
