# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: what a cloud's administrator prepares for a cluster, in project
# k8s: networks for pods and services behind a router, and a security group.

# ensure KIND NAME JSON: prints the id of the object of that name, made if need be.
ensure() {
	local kind=${1//-/_} id
	id=$(neutron GET "/$1s?name=$2&fields=id" | jq -r ".${kind}s[0].id // empty")
	[[ -n $id ]] || id=$(neutron POST "/$1s" "{\"$kind\": {\"name\": \"$2\", $3}}" | jq -er ".$kind.id")
	echo "$id"
}

# ensure_subnet NAME NETWORK CIDR GATEWAY [JSON]
ensure_subnet() {
	local version=4
	[[ $3 != *:* ]] || version=6
	ensure subnet "$1" "\"network_id\": \"$2\", \"cidr\": \"$3\", \"gateway_ip\": \"$4\",
		\"ip_version\": $version, \"enable_dhcp\": false ${5:+, $5}"
}

# ensure_subnets6: beside each IPv4 subnet one of IPv6. None has an address mode: Neutron
# makes no ports by bulk requests in a network with a SLAAC subnet, and no router
# advertises anything.
ensure_subnets6() {
	[[ $FAMILIES == dual ]] || return 0
	EXT_SUBNET6=$(ensure_subnet k8s-external6 "$EXT_NET" "$EXT_CIDR6" "$EXT_GATEWAY6")
	POD_SUBNET6=$(ensure_subnet k8s-pods6 "$POD_NET" "$POD_CIDR6" "$POD_GATEWAY6")
	SERVICE_SUBNET6=$(ensure_subnet k8s-services6 "$SERVICE_NET" "$SERVICE_SUBNET_CIDR6" "$SERVICE_GATEWAY6" \
		"\"allocation_pools\": [{\"start\": \"${SERVICE_POOL6%-*}\", \"end\": \"${SERVICE_POOL6#*-}\"}]")
	NODE_SUBNET6=$(ensure_subnet k8s-nodes6 "$NODE_NET" "$NODE_CIDR6" "$API_IP6")
	IDS+=(POD_SUBNET6 SERVICE_SUBNET6 NODE_SUBNET6)
}

ensure_leg() { # ROUTER SUBNET
	neutron GET "/ports?device_id=$1&fields=fixed_ips" | grep -q "$2" ||
		neutron PUT "/routers/$1/add_router_interface" "{\"subnet_id\": \"$2\"}" >/dev/null
}

networks_up() {
	local ext_subnet subnet family IDS=(PROJECT EXT_NET ROUTER POD_NET POD_SUBNET SERVICE_NET SERVICE_SUBNET NODE_NET NODE_SUBNET POD_SG)
	local EXT_SUBNET6='' POD_SUBNET6='' SERVICE_SUBNET6='' NODE_SUBNET6=''
	login kuryr k8s
	EXT_NET=$(ensure network k8s-external '"router:external": true,
		"provider:network_type": "flat", "provider:physical_network": "external"')
	ext_subnet=$(ensure_subnet k8s-external "$EXT_NET" "$EXT_CIDR" "$EXT_GATEWAY" \
		"\"allocation_pools\": [{\"start\": \"${EXT_CIDR%.*}.100\", \"end\": \"${EXT_CIDR%.*}.250\"}]")
	POD_NET=$(ensure network k8s-pods '"shared": false')
	POD_SUBNET=$(ensure_subnet k8s-pods "$POD_NET" "$POD_CIDR" "$POD_GATEWAY")
	SERVICE_NET=$(ensure network k8s-services '"shared": false')
	SERVICE_SUBNET=$(ensure_subnet k8s-services "$SERVICE_NET" "$SERVICE_SUBNET_CIDR" "$SERVICE_GATEWAY" \
		"\"allocation_pools\": [{\"start\": \"${SERVICE_POOL%-*}\", \"end\": \"${SERVICE_POOL#*-}\"}]")
	# The nodes' network is none of Neutron's: a subnet with its addresses, on no router,
	# is there for Octavia, which wants to be told the subnet of each endpoint.
	NODE_NET=$(ensure network k8s-nodes '"shared": false')
	NODE_SUBNET=$(ensure_subnet k8s-nodes "$NODE_NET" "$NODE_CIDR" "$API_IP")
	ensure_subnets6
	# No SNAT: nodes see pods by their own addresses, as Kubernetes wants it.
	ROUTER=$(ensure router k8s "\"external_gateway_info\": {\"network_id\": \"$EXT_NET\", \"enable_snat\": false,
		\"external_fixed_ips\": [{\"subnet_id\": \"$ext_subnet\", \"ip_address\": \"$ROUTER_IP\"}
		${EXT_SUBNET6:+, {\"subnet_id\": \"$EXT_SUBNET6\", \"ip_address\": \"$ROUTER_IP6\"\}}]}")
	for subnet in "$POD_SUBNET" "$SERVICE_SUBNET" $POD_SUBNET6 $SERVICE_SUBNET6; do
		ensure_leg "$ROUTER" "$subnet"
	done
	POD_SG=$(ensure security-group k8s-pods '"description": "lets everything in"')
	for family in IPv4 ${POD_SUBNET6:+IPv6}; do
		[[ $(neutron GET "/security-group-rules?security_group_id=$POD_SG&direction=ingress&ethertype=$family" |
			jq '.security_group_rules | length') != 0 ]] ||
			neutron POST /security-group-rules "{\"security_group_rule\":
				{\"security_group_id\": \"$POD_SG\", \"direction\": \"ingress\", \"ethertype\": \"$family\"}}" >/dev/null
	done
	# shellcheck disable=SC2034
	PROJECT=$(neutron GET "/networks/$POD_NET?fields=project_id" | jq -er .network.project_id)
	write_ids
	# The first packets to a neighbour may be lost while it is looked up: until the
	# nodes' router had spoken to the pods', a pod's first connection took 9 s to fail.
	[[ $KIND == sim ]] || await 60 "answer of the pods' router" in_cp ping -c1 -W1 "$ROUTER_IP"
	[[ $FAMILIES != dual ]] || await 60 "answer of the pods' router by IPv6" in_cp ping -c1 -W1 "$ROUTER_IP6"
	[[ $KIND == sim ]] || tenants_up "$ext_subnet"
	say "pod and service networks are there"
}

write_ids() {
	local name
	for name in "${IDS[@]}"; do
		echo "$name=${!name}"
	done >"$CLOUD/ids.new"
	mv "$CLOUD/ids.new" "$CLOUD/ids"
}
