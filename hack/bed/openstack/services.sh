# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: MariaDB, Keystone, Neutron and Octavia. All listen on the node
# network only, so that host-network pods and the machine reach them alike; OVN and
# MariaDB are reached by Unix sockets, which know no network namespace.

CLOUD_APIS=(octavia octavia-worker octavia-driver-agent neutron keystone)
# has_octavia: not where Neutron has no OVN, whose provider would have nothing to write to
has_octavia() { [[ $KIND != ovs ]]; }

# The sign that databases and identities are complete. Without it they are made
# anew: what a killed first start has left is not looked at.
BOOTSTRAPPED=$CLOUD/bootstrapped

cloud_forget_half() {
	[[ -e $BOOTSTRAPPED ]] && return
	stop "${CLOUD_APIS[@]}" mysql
	kill_hard "${CLOUD_APIS[@]}" mysql
	rm -rf "$CLOUD"/{mysql,mysql.new,pristine.sql,ids} "$ETC"/{fernet,credential}-keys
	# OVN's objects belong to Neutron's rows.
	! [[ -e $CLOUD/ovn/nb.db ]] || { stop ovn-northd ovn-nb && rm -f "$CLOUD/ovn"/{nb.db,.nb.db.*}; }
}

mysql_up() {
	if [[ ! -d $CLOUD/mysql ]]; then
		rm -rf "$CLOUD/mysql.new"
		"${inside[@]}" mariadb-install-db --no-defaults --user=root --datadir="$CLOUD/mysql.new" \
			--auth-root-authentication-method=normal --skip-test-db >"$LOG/mysql-install.log" 2>&1
		mv "$CLOUD/mysql.new" "$CLOUD/mysql"
	fi
	run_mysql
	await 120 "database server (should it refuse its files: bed down --wipe)" sql "select 1"
}
# A throw-away database: it outlives its process, but no power cut. MariaDB from 11.6 on
# refuses a transaction that writes a row which changed since it was first read (1020), and
# OpenStack 2025.1 does not repeat those: quotas would be left counted.
run_mysql() {
	local isolation=()
	[[ $RELEASE == zed ]] || isolation=(--innodb-snapshot-isolation=OFF)
	start mysql "$CP" "${inside[@]}" mariadbd --no-defaults --user=root --datadir="$CLOUD/mysql" --tmpdir="$CLOUD/mysql" \
		--socket="$MYSQL_SOCKET" --skip-networking --skip-log-bin --performance-schema=off --skip-name-resolve \
		--innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-buffer-pool-size=64M \
		--innodb-flush-method=nosync --max-connections=200 "${isolation[@]}" \
		--character-set-server=utf8mb3 --collation-server=utf8mb3_general_ci
}
sql() { mariadb --no-defaults --socket="$MYSQL_SOCKET" -u root -N -e "$1"; }

schemas() {
	local db
	for db in keystone neutron octavia; do
		sql "create database if not exists $db; grant all on $db.* to openstack@localhost identified by '$PASSWORD'"
	done
	together neutron_schema other_schemas
}
# Neutron's is the slow one.
neutron_schema() {
	"${inside[@]}" neutron-db-manage --config-file "$ETC/neutron.conf" upgrade heads >"$LOG/neutron-schema.log" 2>&1 ||
		die "cannot make Neutron's database: see $LOG/neutron-schema.log"
}
other_schemas() {
	local manage=("${inside[@]}" keystone-manage --config-file "$ETC/keystone.conf")
	mkdir -p "$ETC"/{fernet,credential}-keys
	chmod 700 "$ETC"/{fernet,credential}-keys
	{
		"${manage[@]}" db_sync &&
			"${manage[@]}" fernet_setup --keystone-user root --keystone-group root &&
			"${manage[@]}" credential_setup --keystone-user root --keystone-group root &&
			"${manage[@]}" bootstrap --bootstrap-password "$PASSWORD" --bootstrap-region-id RegionOne \
				--bootstrap-{admin,internal,public}-url="$AUTH_URL" &&
			"${inside[@]}" octavia-db-manage --config-file "$ETC/octavia.conf" upgrade head
	} >"$LOG/other-schema.log" 2>&1 || die "cannot make the databases: see $LOG/other-schema.log"
}

identities() {
	local balancers=()
	! has_octavia || balancers=("load-balancer=$OCTAVIA_URL")
	env -i PATH="$PATH" HOME=/root OS_CLIENT_CONFIG_FILE="$CLOUD/clouds.yaml" OS_CLOUD=admin \
		/usr/bin/python3 "$HERE/openstack/bootstrap.py" "$PASSWORD" \
		"network=$NEUTRON_URL" "${balancers[@]}" >"$LOG/identities.log" 2>&1 ||
		die "cannot make users and catalogue: see $LOG/identities.log"
	# What `bed cloud reset` goes back to: nothing has been made in either yet.
	mariadb-dump --no-defaults --socket="$MYSQL_SOCKET" -u root --add-drop-database \
		--databases neutron octavia >"$CLOUD/pristine.sql"
	touch "$BOOTSTRAPPED"
}

cloud_up() {
	config_up
	cloud_forget_half
	if [[ $KIND == ovs ]]; then together rabbitmq_up mysql_up; else together ovn_up mysql_up ${AMPHORA:+rabbitmq_up}; fi
	if [[ ! -e $BOOTSTRAPPED ]]; then
		say "making OpenStack's databases (first start)"
		schemas
	fi
	run_keystone
	run_neutron
	! has_octavia || run_octavia_driver_agent
	amphora_up
	await 120 Keystone answers "$AUTH_URL"
	[[ -e $BOOTSTRAPPED ]] || identities
	! has_octavia || run_octavia
	await 120 Neutron answers "$NEUTRON_URL/"
	! has_octavia || await 120 Octavia answers "$OCTAVIA_URL/"
	say "OpenStack answers"
}

# uwsgi closes each connection after one answer: a client that is not told so sends
# its next request down a dying connection now and then, which Neutron answers by 503.
run_wsgi() { # NAME URL SCRIPT ARGUMENT...
	local address=${2#http://}
	start "$1" "$CP" "${shadow[@]}" "${inside[@]}" uwsgi_python3 --master --die-on-term --lazy-apps --enable-threads \
		--buffer-size 65535 --http-socket "${address%%/*}" --add-header "Connection: close" \
		--no-orphans --processes 1 --threads 4 --disable-logging --wsgi-file "$3" --pyargv "${*:4}"
}
run_keystone() {
	shadow=()
	run_wsgi keystone "$AUTH_URL" /usr/bin/keystone-wsgi-public --config-file "$ETC/keystone.conf"
}

# Zed's Neutron waits up to ten times half a second for every port that OVN reports up but
# that is bound to no host, as a router's are, and other ports' events queue up
# behind: the first pod's port took 11 s. The number is no option, hence the detour.
# 2025.1 waits for ports of compute only.
run_neutron() {
	local server=(neutron-server) conf=("$ETC/neutron.conf")
	if [[ $KIND == ovs ]]; then
		conf+=("$AGENTS_CONF")
	elif [[ $RELEASE == zed ]]; then
		server=(/usr/bin/python3 -c '
from neutron.cmd.eventlet.server import main
from neutron.plugins.ml2 import plugin
plugin.MAX_PROVISIONING_TRIES = 1
main()')
	fi
	start neutron "$CP" "${inside[@]}" "${server[@]}" "${conf[@]/#/--config-file=}"
}

# Octavia and its driver's agent meet in /var/run/octavia, which is built in: they
# get a /run of their own to keep it out of the machine's. The agent forks a process for each
# request of a provider, and each sets SQLAlchemy up and has Python's collector of garbage touch
# (so copy) all 57 MB of the parent: a second or two of a core, for providers that wait 30 s at
# most. So the parent looks up what is not there before it forks, and freezes what it has.
run_octavia_driver_agent() {
	octavia_shadow
	start octavia-driver-agent "$CP" "${shadow[@]}" "${inside[@]}" /usr/bin/python3 -c '
import gc

from octavia.api.drivers.driver_agent import driver_get, driver_listener
from octavia.cmd.driver_agent import main

def after_a_lookup(listen):
    def run(exit_event):
        try:
            for kind in "loadbalancers", "listeners", "pools", "members", "healthmonitors":
                driver_get.process_get({"object": kind, "id": "none"})
        except Exception as e:
            print("lookup before the first request:", e)
        gc.freeze()
        listen(exit_event)
    return run

driver_listener.get_listener = after_a_lookup(driver_listener.get_listener)
driver_listener.status_listener = after_a_lookup(driver_listener.status_listener)
main()' --config-file "$ETC/octavia.conf"
}
run_octavia() {
	octavia_shadow
	[[ -z $AFFINITY ]] || octavia_affinity
	run_wsgi octavia "$OCTAVIA_URL" /usr/bin/octavia-wsgi --config-file "$ETC/octavia.conf"
}
octavia_shadow() {
	mkdir -p "$RUN/octavia/octavia"
	# shellcheck disable=SC2016
	shadow=(unshare --mount sh -c 'mount --bind "$0" /run && exec "$@"' "$RUN/octavia")
}

# Zed's OVN provider stores a pool's session persistence and writes none of it to OVN. That
# of 2025.1 writes affinity_timeout=None for a pool without a timeout, as all of TCP are. With
# KURYR_BED_AFFINITY=1 the API, which is what writes to OVN, gets a copy that sets OVN's option.
octavia_affinity() {
	local copy=$CLOUD/affinity from=
	! has_system || from=$SYSTEM
	rm -rf "$copy"
	mkdir -p "$copy"
	cp -r "$from/usr/lib/python3/dist-packages/ovn_octavia_provider" "$copy/"
	patch -s -d "$copy/ovn_octavia_provider" -p1 <"$HERE/openstack/affinity-$RELEASE.patch" ||
		die "openstack/affinity-$RELEASE.patch is not for the python3-ovn-octavia-provider in ${from:-/}"
	shadow=(env PYTHONPATH="$copy" "${shadow[@]}")
}

cloud_down() {
	stop "${CLOUD_APIS[@]}"
	stop ovn-northd ovn-nb ovn-sb mysql rabbitmq
}

# cloud_reset empties Neutron, Octavia and OVN; users and tokens stay valid.
cloud_reset() {
	local chassis port
	if [[ ! -s $CLOUD/pristine.sql ]] || ! alive mysql; then die "the cloud is not up"; fi
	stop octavia octavia-worker octavia-driver-agent neutron ovn-nb rabbitmq # it keeps no queue
	for chassis in gateway "${NODES[@]}"; do
		agents_down "$chassis"
		alive "$chassis-ovsdb-server" || continue
		for port in $(ovs "$chassis" --bare --columns=name find interface 'external_ids:iface-id!=""' 'type=""'); do
			ovs "$chassis" --no-wait --if-exists del-port br-int "$port"
		done
	done
	mariadb --no-defaults --socket="$MYSQL_SOCKET" -u root <"$CLOUD/pristine.sql"
	rm -f "$CLOUD/ovn"/{nb.db,.nb.db.*} "$CLOUD/ids"
	cloud_up
	if [[ $KIND == ovs ]]; then together gateway_up "${NODES[@]/#/node_chassis_up }"; fi
	cloud_settle
}

# cloud_settle: once all chassis are there
cloud_settle() {
	login admin admin
	if [[ $KIND == ovs ]]; then
		await 90 "report of the agents in Neutron" agents_known gateway "${NODES[@]}"
	else
		await 90 "heartbeat of the chassis in Neutron" chassis_known gateway "${NODES[@]}"
	fi
	networks_up
}
