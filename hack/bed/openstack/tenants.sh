# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Sourced by `bed`: what a cloud's administrator prepares for networks of namespaces:
# a subnet pool for the cluster and a network that namespaces may choose, and three more
# projects, each with a security group of its own, and two of them with a router and a
# subnet pool of their own, too. The nodes have routes to all of it.

# All of 10/8 that is no pod's or Service's is by way of the pods' router. Pools and the given
# network hold parts of it. Kuryr chooses prefixes in a range that nobody else has a part of.
ROUTED_CIDR=10.0.0.0/8
NAMESPACE_CIDR=10.192.0.0/10
NAMESPACE_POOL_CIDR=10.160.0.0/14
GIVEN_CIDR=10.172.0.0/24 GIVEN_GATEWAY=10.172.0.1
# The same of IPv6, unless the bed is not dual; the subnet pools of tenants have IPv4 only.
ROUTED_CIDR6='' NAMESPACE_CIDR6='' NAMESPACE_POOL_CIDR6='' GIVEN_CIDR6='' GIVEN_GATEWAY6=''
if [[ ${FAMILIES:-} == dual ]]; then
	ROUTED_CIDR6=fd00:8000::/32 NAMESPACE_CIDR6=fd00:8000:8000::/33 NAMESPACE_POOL_CIDR6=fd00:8000:160::/48
	GIVEN_CIDR6=fd00:8000:172::/64 GIVEN_GATEWAY6=fd00:8000:172::1
fi
TENANTS=(tenant-a tenant-b tenant-c)
declare -A TENANT_ROUTER_IP=([tenant-a]=172.24.4.4 [tenant-b]=172.24.4.5)
declare -A TENANT_ROUTER_IP6=([tenant-a]=fd00:24::4 [tenant-b]=fd00:24::5)
declare -A TENANT_CIDR=([tenant-a]=10.168.0.0/16 [tenant-b]=10.169.0.0/16)

# tenant_routes: the ways to all of that, from the nodes' router
tenant_routes() {
	local tenant
	ip -n "$CP" route replace "$ROUTED_CIDR" via "$ROUTER_IP" dev br-ex mtu lock "$POD_MTU"
	[[ -z $ROUTED_CIDR6 ]] || ip -n "$CP" route replace "$ROUTED_CIDR6" via "$ROUTER_IP6" dev br-ex mtu lock "$POD_MTU"
	for tenant in "${!TENANT_CIDR[@]}"; do
		ip -n "$CP" route replace "${TENANT_CIDR[$tenant]}" via "${TENANT_ROUTER_IP[$tenant]}" dev br-ex mtu lock "$POD_MTU"
	done
}

# tenants_up EXTERNAL-SUBNET: in project k8s, whose networks are there. Its ids are
# appended to those of the networks.
tenants_up() {
	local tenant
	rm -f "$CLOUD"/ids.tenant-*
	together namespaces_up "${TENANTS[@]/#/tenant_up $1 }"
	cat "$CLOUD"/ids.namespaces "${TENANTS[@]/#/$CLOUD/ids.}" >>"$CLOUD/ids"
	for tenant in "${!TENANT_ROUTER_IP[@]}"; do
		await 60 "answer of the router of $tenant" in_cp ping -c1 -W1 "${TENANT_ROUTER_IP[$tenant]}"
	done
}

namespaces_up() {
	local pool net subnet
	pool=$(ensure_pool k8s-namespaces "$NAMESPACE_POOL_CIDR")
	net=$(ensure network k8s-given '"shared": false')
	subnet=$(ensure_subnet k8s-given "$net" "$GIVEN_CIDR" "$GIVEN_GATEWAY")
	ensure_leg "$ROUTER" "$subnet"
	printf '%s=%s\n' NAMESPACE_POOL "$pool" NAMESPACE_POOL_CIDR "$NAMESPACE_POOL_CIDR" NAMESPACE_CIDR "$NAMESPACE_CIDR" \
		GIVEN_NET "$net" GIVEN_SUBNET "$subnet" GIVEN_CIDR "$GIVEN_CIDR" >"$CLOUD/ids.namespaces"
	[[ -n $NAMESPACE_CIDR6 ]] || return 0
	pool=$(ensure_pool k8s-namespaces6 "$NAMESPACE_POOL_CIDR6")
	subnet=$(ensure_subnet k8s-given6 "$net" "$GIVEN_CIDR6" "$GIVEN_GATEWAY6")
	ensure_leg "$ROUTER" "$subnet"
	printf '%s=%s\n' NAMESPACE_POOL6 "$pool" NAMESPACE_POOL_CIDR6 "$NAMESPACE_POOL_CIDR6" NAMESPACE_CIDR6 "$NAMESPACE_CIDR6" \
		GIVEN_SUBNET6 "$subnet" >>"$CLOUD/ids.namespaces"
}

tenant_up() { # EXTERNAL-SUBNET TENANT
	local project group name=${2^^}
	name=${name//-/_}
	project=$(project_id "$2")
	# A tenant's pods are for each other, for the nodes (kubelet's probes come from these) and
	# for the machine, which asks their floating IPs.
	group=$(ensure security-group "$2" "\"project_id\": \"$project\", \"description\": \"lets in itself, the nodes and the machine\"")
	if [[ $(neutron GET "/security-group-rules?security_group_id=$group&direction=ingress" |
		jq '.security_group_rules | length') == 0 ]]; then
		neutron POST /security-group-rules "{\"security_group_rules\": [
			$(ingress_rule "$group" "$project" "\"remote_group_id\": \"$group\""),
			$(ingress_rule "$group" "$project" "\"remote_ip_prefix\": \"$NODE_CIDR\""),
			$(ingress_rule "$group" "$project" "\"remote_ip_prefix\": \"$OUTSIDE_IP/32\"")
			${NODE_CIDR6:+, $(ingress_rule "$group" "$project" "\"remote_group_id\": \"$group\"" IPv6),
			$(ingress_rule "$group" "$project" "\"remote_ip_prefix\": \"$NODE_CIDR6\"" IPv6)}]}" >/dev/null
	fi
	printf '%s=%s\n' "${name}_PROJECT" "$project" "${name}_SG" "$group" >"$CLOUD/ids.$2"
	[[ -z ${TENANT_CIDR[$2]:-} ]] || tenant_router "$@" "$project" "$name" >>"$CLOUD/ids.$2"
}

# tenant_router EXTERNAL-SUBNET TENANT PROJECT NAME: prints its ids
tenant_router() {
	local pool router
	pool=$(ensure_pool "$2" "${TENANT_CIDR[$2]}" "$3")
	router=$(ensure router "$2" "\"project_id\": \"$3\", \"external_gateway_info\": {\"network_id\": \"$EXT_NET\",
		\"enable_snat\": false, \"external_fixed_ips\": [{\"subnet_id\": \"$1\", \"ip_address\": \"${TENANT_ROUTER_IP[$2]}\"}
			${EXT_SUBNET6:+, {\"subnet_id\": \"$EXT_SUBNET6\", \"ip_address\": \"${TENANT_ROUTER_IP6[$2]}\"\}}]}")
	# The way to the cluster IPs, which no interface of these routers has.
	neutron PUT "/routers/$router" "{\"router\": {\"routes\": [{\"destination\": \"$SERVICE_SUBNET_CIDR\", \"nexthop\": \"$ROUTER_IP\"}
		${EXT_SUBNET6:+, {\"destination\": \"$SERVICE_SUBNET_CIDR6\", \"nexthop\": \"$ROUTER_IP6\"\}}]}}" >/dev/null
	printf '%s=%s\n' "$4_POOL" "$pool" "$4_ROUTER" "$router" "$4_CIDR" "${TENANT_CIDR[$2]}"
}

ingress_rule() { # GROUP PROJECT JSON [IPv6]
	echo "{\"security_group_id\": \"$1\", \"project_id\": \"$2\", \"direction\": \"ingress\", \"ethertype\": \"${4:-IPv4}\", $3}"
}

# ensure_pool NAME CIDR [PROJECT]: of /24, as 256 namespaces fit into a /16 then, and of /64
ensure_pool() {
	local length=24
	[[ $2 != *:* ]] || length=64
	ensure subnetpool "$1" "\"prefixes\": [\"$2\"], \"default_prefixlen\": $length, \"min_prefixlen\": $length
		${3:+, \"project_id\": \"$3\"}"
}

project_id() { # NAME
	curl --fail-with-body -sS --noproxy '*' --max-time 60 -H "X-Auth-Token: $TOKEN" "$AUTH_URL/projects?name=$1" |
		jq -er '.projects[0].id'
}
