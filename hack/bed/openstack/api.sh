# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: the REST APIs by curl and jq; the openstack command needs two
# seconds for each call.

# login USER PROJECT: sets TOKEN
login() {
	TOKEN=$(jq -n --arg user "$1" --arg password "$PASSWORD" --arg project "$2" '{auth: {
			identity: {methods: ["password"], password: {user: {name: $user, password: $password, domain: {id: "default"}}}},
			scope: {project: {name: $project, domain: {id: "default"}}}}}' |
		curl -fsS --noproxy '*' -D - -o /dev/null -H 'Content-Type: application/json' -d @- "$AUTH_URL/auth/tokens" |
		tr -d '\r' | sed -n 's/^X-Subject-Token: //Ip')
	[[ -n $TOKEN ]]
}

# neutron METHOD PATH [JSON]: prints the answer
neutron() {
	curl --fail-with-body -sS --noproxy '*' --max-time 120 -X "$1" -H "X-Auth-Token: $TOKEN" \
		-H 'Content-Type: application/json' ${3:+-d "$3"} "$NEUTRON_URL/v2.0$2"
}

answers() { curl -fs -o /dev/null --noproxy '*' --max-time 20 "$1"; } # URL

# Neutron binds a port only to a chassis that has answered a heartbeat: a new one
# has not, its ports would end as binding_failed and stay so. Neutron's own next
# heartbeat may be 37 s away.
chassis_known() { # CHASSIS...
	local name
	nbctl --wait=sb sync
	for name; do
		[[ $(neutron GET "/agents?host=$name&fields=alive" | jq -r '.agents[0].alive') == true ]] || return 1
	done
}

port_active() { [[ $(neutron GET "/ports/$1?fields=status" | jq -r .port.status) == ACTIVE ]]; }
