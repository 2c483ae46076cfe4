// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const port = `
apiVersion: openstack.org/v1
kind: KuryrPort
metadata: {generateName: rules-}
spec:
  pool: node-1-0123abcd
  nodeName: node-1
  projectID: demo
  networkID: net
  securityGroupIDs: [group]
  vif:
    type: ovs
    macAddress: fa:16:3e:00:00:01
    mtu: 1450
    addresses:
    - {ip: 10.0.0.5, prefixLength: 24, subnetID: subnet, gateway: 10.0.0.1}
    routes:
    - {destination: 10.96.0.0/16, gateway: 10.0.0.1}
    details: {bridge_name: br-int}
  podRef: {namespace: default, name: web-0, uid: uid-1, interface: eth0, default: true}
`

const pool = `
apiVersion: openstack.org/v1
kind: KuryrPortPool
metadata: {generateName: rules-}
spec:
  key: {projectID: demo, networkID: net, subnetIDs: [a, b], nodeName: node-1, securityGroupIDs: [group], vifType: ovs}
  min: 0
  max: 10
  batch: 5
  ttl: 10m
  cooldown: 30s
`

const balancer = `
apiVersion: openstack.org/v1
kind: KuryrLoadBalancer
metadata: {generateName: rules-, namespace: default}
spec:
  vips: [{ip: 10.96.0.7, subnetID: services}]
  listeners:
  - {name: http, protocol: TCP, port: 80, members: [{name: default/web-0, ip: 10.1.0.5, port: 8080, subnetID: pods}]}
  publicIP: {networkID: public}
`

// One object refused, with the message, and one accepted for each rule. The
// patches are JSON merge patches of the objects above.
func TestRules(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	addresses := func(a string) string { return "spec: {vif: {addresses: [" + a + "]}}" }
	routes := func(r string) string { return "spec: {vif: {routes: [" + r + "]}}" }
	for _, r := range []struct{ name, base, refused, message, accepted string }{
		{"spec", port, `spec: null`, "spec: Required value", ``},

		{"pool", port, `spec: {pool: null}`, "spec.pool: Required value", ``},
		{"pool empty", port, `spec: {pool: ""}`, "spec.pool in body should be at least 1 chars long", `spec: {pool: p}`},
		{"pool long", port, `spec: {pool: ` + long(254) + `}`, "Too long: may not be more than 253", `spec: {pool: ` + long(253) + `}`},
		{"nodeName", port, `spec: {nodeName: null}`, "spec.nodeName: Required value", ``},
		{"nodeName empty", port, `spec: {nodeName: ""}`, "spec.nodeName in body should be at least 1 chars long", `spec: {nodeName: x}`},
		{"nodeName long", port, `spec: {nodeName: ` + long(254) + `}`, "Too long: may not be more than 253", `spec: {nodeName: ` + long(253) + `}`},
		{"projectID long", port, `spec: {projectID: ` + long(65) + `}`, "Too long: may not be more than 64", `spec: {projectID: null}`},
		{"networkID", port, `spec: {networkID: null}`, "spec.networkID: Required value", ``},
		{"networkID empty", port, `spec: {networkID: ""}`, "spec.networkID in body should be at least 1 chars long", `spec: {networkID: x}`},
		{"networkID long", port, `spec: {networkID: ` + long(65) + `}`, "Too long: may not be more than 64", `spec: {networkID: ` + long(64) + `}`},
		{"groups twice", port, `spec: {securityGroupIDs: [a, a]}`, `spec.securityGroupIDs[1]: Duplicate value: "a"`, `spec: {securityGroupIDs: []}`},
		{"group empty", port, `spec: {securityGroupIDs: [""]}`, "spec.securityGroupIDs[0] in body should be at least 1 chars long", `spec: {securityGroupIDs: null}`},
		{"group long", port, `spec: {securityGroupIDs: [` + long(65) + `]}`, "Too long: may not be more than 64", `spec: {securityGroupIDs: [` + long(64) + `]}`},
		{"groups many", port, `spec: {securityGroupIDs: ` + list(65) + `}`, "Too many: 65: must have at most 64 items", `spec: {securityGroupIDs: ` + list(64) + `}`},

		{"vif", port, `spec: {vif: null}`, "spec.vif: Required value", ``},
		{"vif type", port, `spec: {vif: {type: null}}`, "spec.vif.type: Required value", ``},
		{"vif type form", port, `spec: {vif: {type: OVS}}`, "write the type of the vif in lower case, as in ovs or bridge; other types name an executable of the binding driver folder", `spec: {vif: {type: midonet}}`},
		{"vif type path", port, `spec: {vif: {type: ../sh}}`, "write the type of the vif in lower case", `spec: {vif: {type: my-driver}}`},
		{"vif type long", port, `spec: {vif: {type: ` + long(64) + `}}`, "Too long: may not be more than 63", `spec: {vif: {type: ` + long(63) + `}}`},
		{"mac", port, `spec: {vif: {macAddress: null}}`, "spec.vif.macAddress: Required value", ``},
		{"mac form", port, `spec: {vif: {macAddress: "FA:16:3E:00:00:01"}}`, "write the MAC address as six lower-case hexadecimal pairs, as in fa:16:3e:00:00:01", `spec: {vif: {macAddress: "02:00:00:00:00:ff"}}`},
		{"mac long", port, `spec: {vif: {macAddress: "fa:16:3e:00:00:01:02"}}`, "Too long: may not be more than 17", ``},
		{"mtu low", port, `spec: {vif: {mtu: 67}}`, "write an MTU of 68 to 65535 bytes (IPv6 needs 1280 at least), or 0 for the node's own", `spec: {vif: {mtu: 68}}`},
		{"mtu high", port, `spec: {vif: {mtu: 65536}}`, "write an MTU of 68 to 65535 bytes", `spec: {vif: {mtu: 65535}}`},
		{"mtu negative", port, `spec: {vif: {mtu: -1}}`, "write an MTU of 68 to 65535 bytes", `spec: {vif: {mtu: 0}}`},
		{"bridge long", port, `spec: {vif: {bridge: ` + long(16) + `}}`, "Too long: may not be more than 15", `spec: {vif: {bridge: br-int}}`},
		{"vlan missing", port, `spec: {vif: {type: vlan}}`, "spec.vif.vlanID is missing: a vif of type vlan needs the VLAN ID (1 to 4094) of its subport", `spec: {vif: {type: vlan, vlanID: 7}}`},
		{"vlan low", port, `spec: {vif: {vlanID: 0}}`, "should be greater than or equal to 1", `spec: {vif: {vlanID: 1}}`},
		{"vlan high", port, `spec: {vif: {vlanID: 4095}}`, "should be less than or equal to 4094", `spec: {vif: {vlanID: 4094}}`},
		{"parent long", port, `spec: {vif: {parentPortID: ` + long(65) + `}}`, "Too long: may not be more than 64", `spec: {vif: {parentPortID: parent}}`},
		{"details many", port, `spec: {vif: {details: {` + strings.Join(names(33, ": x"), ", ") + `, bridge_name: null}}}`, "Too many: 33: must have at most 32 items", `spec: {vif: {details: {` + strings.Join(names(32, ": x"), ", ") + `, bridge_name: null}}}`},

		{"addresses", port, `spec: {vif: {addresses: null}}`, "spec.vif.addresses: Required value", ``},
		{"addresses none", port, addresses(``), "spec.vif.addresses in body should have at least 1 items", ``},
		{"addresses many", port, addresses(ips(17)), "Too many: 17: must have at most 16 items", addresses(ips(16))},
		{"address twice", port, addresses(`{ip: 10.0.0.5, prefixLength: 24}, {ip: 10.0.0.5, prefixLength: 24}`), "Duplicate value", addresses(`{ip: 10.0.0.5, prefixLength: 24}, {ip: "fd00::5", prefixLength: 64, gateway: "fd00::1"}`)},
		{"ip", port, addresses(`{prefixLength: 24}`), "spec.vif.addresses[0].ip: Required value", ``},
		{"ip form", port, addresses(`{ip: 10.0.0.5/24, prefixLength: 24}`), "write an IP address, as in 10.0.0.5 or fd00::5, without a prefix length", addresses(`{ip: 10.0.0.5, prefixLength: 24}`)},
		{"ip canonical", port, addresses(`{ip: "FD00:0::5", prefixLength: 64}`), "write the IP address in its shortest form and in lower case, as in fd00::5", addresses(`{ip: "fd00::5", prefixLength: 64}`)},
		{"ip long", port, addresses(`{ip: ` + long(46) + `, prefixLength: 64}`), "Too long: may not be more than 45", ``},
		{"prefix", port, addresses(`{ip: 10.0.0.5}`), "spec.vif.addresses[0].prefixLength: Required value", ``},
		{"prefix negative", port, addresses(`{ip: 10.0.0.5, prefixLength: -1}`), "should be greater than or equal to 0", addresses(`{ip: 10.0.0.5, prefixLength: 0}`)},
		{"prefix of IPv4", port, addresses(`{ip: 10.0.0.5, prefixLength: 33}`), "an IPv4 address has a prefixLength of 32 at most", addresses(`{ip: 10.0.0.5, prefixLength: 32}`)},
		{"prefix of IPv6", port, addresses(`{ip: "fd00::5", prefixLength: 129}`), "should be less than or equal to 128", addresses(`{ip: "fd00::5", prefixLength: 128}`)},
		{"subnetID long", port, addresses(`{ip: 10.0.0.5, prefixLength: 24, subnetID: ` + long(65) + `}`), "Too long: may not be more than 64", ``},
		{"gateway form", port, addresses(`{ip: 10.0.0.5, prefixLength: 24, gateway: router}`), "write the gateway as an IP address, as in 10.0.0.1 or fd00::1", ``},
		{"gateway long", port, addresses(`{ip: 10.0.0.5, prefixLength: 24, gateway: ` + long(46) + `}`), "Too long: may not be more than 45", ``},
		{"gateway family", port, addresses(`{ip: 10.0.0.5, prefixLength: 24, gateway: "fd00::1"}`), "the gateway has to be of the same IP family as the address", addresses(`{ip: "fd00::5", prefixLength: 64, gateway: "fe80::1"}`)},

		{"routes many", port, routes(strings.Repeat(`{destination: 10.1.0.0/16, gateway: 10.0.0.1},`, 65)), "Too many: 65: must have at most 64 items", routes(strings.Repeat(`{destination: 10.1.0.0/16, gateway: 10.0.0.1},`, 64))},
		{"destination", port, routes(`{gateway: 10.0.0.1}`), "spec.vif.routes[0].destination: Required value", routes(``)},
		{"destination form", port, routes(`{destination: 10.1.0.0, gateway: 10.0.0.1}`), "write the destination as a prefix, as in 10.96.0.0/16 or fd00::/64", routes(`{destination: 0.0.0.0/0, gateway: 10.0.0.1}`)},
		{"destination long", port, routes(`{destination: ` + long(50) + `, gateway: 10.0.0.1}`), "Too long: may not be more than 49", ``},
		{"route gateway", port, routes(`{destination: 10.1.0.0/16}`), "spec.vif.routes[0].gateway: Required value", ``},
		{"route gateway form", port, routes(`{destination: 10.1.0.0/16, gateway: eth0}`), "write the gateway as an IP address, as in 10.0.0.1 or fd00::1", routes(`{destination: "fd01::/64", gateway: "fd00::1"}`)},
		{"route gateway long", port, routes(`{destination: 10.1.0.0/16, gateway: ` + long(46) + `}`), "Too long: may not be more than 45", ``},
		{"route family", port, routes(`{destination: "fd01::/64", gateway: 10.0.0.1}`), "the gateway has to be of the same IP family as the destination", ``},

		{"podRef", port, `spec: {podRef: {namespace: null, name: null, uid: null, interface: null}}`, "spec.podRef.namespace: Required value", `spec: {podRef: null}`},
		{"podRef uid", port, `spec: {podRef: {uid: ""}}`, "spec.podRef.uid in body should be at least 1 chars long", `spec: {podRef: {uid: u}}`},
		{"podRef uid long", port, `spec: {podRef: {uid: ` + long(65) + `}}`, "Too long: may not be more than 64", ``},
		{"podRef namespace", port, `spec: {podRef: {namespace: ""}}`, "spec.podRef.namespace in body should be at least 1 chars long", `spec: {podRef: {namespace: x}}`},
		{"podRef namespace long", port, `spec: {podRef: {namespace: ` + long(64) + `}}`, "Too long: may not be more than 63", ``},
		{"podRef name", port, `spec: {podRef: {name: ""}}`, "spec.podRef.name in body should be at least 1 chars long", `spec: {podRef: {name: x}}`},
		{"podRef name long", port, `spec: {podRef: {name: ` + long(254) + `}}`, "Too long: may not be more than 253", ``},
		{"interface", port, `spec: {podRef: {interface: "eth 0"}}`, "write an interface name of 1 to 15 characters, as in eth0", `spec: {podRef: {interface: net1}}`},
		{"interface empty", port, `spec: {podRef: {interface: ""}}`, "write an interface name of 1 to 15 characters", ``},
		{"interface path", port, `spec: {podRef: {interface: ..}}`, "write an interface name of 1 to 15 characters", `spec: {podRef: {interface: eth0.7}}`},
		{"interface long", port, `spec: {podRef: {interface: ` + long(16) + `}}`, "Too long: may not be more than 15", `spec: {podRef: {interface: ` + long(15) + `}}`},

		{"key", pool, `spec: {key: null}`, "spec.key: Required value", ``},
		{"key node", pool, `spec: {key: {nodeName: ""}}`, "spec.key.nodeName in body should be at least 1 chars long", `spec: {key: {nodeName: x}}`},
		{"key node long", pool, `spec: {key: {nodeName: ` + long(254) + `}}`, "Too long: may not be more than 253", ``},
		{"key project long", pool, `spec: {key: {projectID: ` + long(65) + `}}`, "Too long: may not be more than 64", `spec: {key: {projectID: null}}`},
		{"key network long", pool, `spec: {key: {networkID: ` + long(65) + `}}`, "Too long: may not be more than 64", `spec: {key: {networkID: null}}`},
		{"key trunk long", pool, `spec: {key: {parentPortID: ` + long(65) + `}}`, "Too long: may not be more than 64", `spec: {key: {trunkPortID: t}}`},
		{"key subnets", pool, `spec: {key: {subnetIDs: []}}`, "spec.key.subnetIDs in body should have at least 1 items", `spec: {key: {subnetIDs: [a]}}`},
		{"key subnets many", pool, `spec: {key: {subnetIDs: ` + list(17) + `}}`, "Too many: 17: must have at most 16 items", `spec: {key: {subnetIDs: ` + list(16) + `}}`},
		{"key subnet twice", pool, `spec: {key: {subnetIDs: [a, a]}}`, `Duplicate value: "a"`, ``},
		{"key subnet empty", pool, `spec: {key: {subnetIDs: [""]}}`, "should be at least 1 chars long", ``},
		{"key subnet long", pool, `spec: {key: {subnetIDs: [` + long(65) + `]}}`, "Too long: may not be more than 64", ``},
		{"key groups many", pool, `spec: {key: {securityGroupIDs: ` + list(65) + `}}`, "Too many: 65: must have at most 64 items", `spec: {key: {securityGroupIDs: []}}`},
		{"key group twice", pool, `spec: {key: {securityGroupIDs: [a, a]}}`, `Duplicate value: "a"`, ``},
		{"key group empty", pool, `spec: {key: {securityGroupIDs: [""]}}`, "should be at least 1 chars long", ``},
		{"key group long", pool, `spec: {key: {securityGroupIDs: [` + long(65) + `]}}`, "Too long: may not be more than 64", ``},
		{"key vif type", pool, `spec: {key: {vifType: OVS}}`, "write the type of the vif in lower case, as in ovs or bridge, or leave it out to plug ports as the SDN says", `spec: {key: {vifType: ""}}`},
		{"key vif type long", pool, `spec: {key: {vifType: ` + long(64) + `}}`, "Too long: may not be more than 63", ``},
		{"min", pool, `spec: {min: -1}`, "should be greater than or equal to 0", `spec: {min: 10}`},
		{"min high", pool, `spec: {min: 10001, max: 0}`, "should be less than or equal to 10000", `spec: {min: 10000, max: 0}`},
		{"max", pool, `spec: {max: -1}`, "should be greater than or equal to 0", `spec: {max: 0}`},
		{"max high", pool, `spec: {max: 10001}`, "should be less than or equal to 10000", `spec: {max: 10000}`},
		{"min above max", pool, `spec: {min: 11}`, "min is above max: lower min, raise max, or write max: 0 for no upper limit", `spec: {min: 11, max: 0}`},
		{"batch", pool, `spec: {batch: 0}`, "should be greater than or equal to 1", `spec: {batch: 1}`},
		{"batch high", pool, `spec: {batch: 501}`, "should be less than or equal to 500", `spec: {batch: 500}`},
		{"ttl", pool, `spec: {ttl: -1s}`, "write ttl as a time of up to ten years with its unit, as in 10m, or 0s to delete unused ports above min at once", `spec: {ttl: 0s}`},
		{"ttl type", pool, `spec: {ttl: 10}`, "must be of type string", `spec: {ttl: 1h30m0.5s}`},
		{"ttl unit", pool, `spec: {ttl: soon}`, "write ttl as a time", `spec: {ttl: 1µs}`},
		{"ttl high", pool, `spec: {ttl: 87601h}`, "write ttl as a time", `spec: {ttl: 87600h}`},
		{"ttl missing", pool, `spec: {ttl: null}`, "spec.ttl: Required value", ``},
		{"ttl long", pool, `spec: {ttl: ` + strings.Repeat("1ns", 20) + `}`, "Too long: may not be more than 40", ``},
		{"cooldown", pool, `spec: {cooldown: -1s}`, "write cooldown as a time of up to ten years with its unit, as in 30s, or 0s for none", `spec: {cooldown: 500ms}`},
		{"cooldown unit", pool, `spec: {cooldown: "30"}`, "write cooldown as a time", `spec: {cooldown: 0s}`},
		{"cooldown high", pool, `spec: {cooldown: 99999999h}`, "spec.cooldown: Invalid value", ``},
		{"cooldown missing", pool, `spec: {cooldown: null}`, "spec.cooldown: Required value", ``},
		{"cooldown long", pool, `spec: {cooldown: ` + strings.Repeat("1ns", 20) + `}`, "Too long: may not be more than 40", ``},

		{"vips", balancer, `spec: {vips: []}`, "spec.vips in body should have at least 1 items", ``},
		{"vips missing", balancer, `spec: {vips: null}`, "spec.vips: Required value", ``},
		{"vips many", balancer, vips(`10.96.0.7`, `fd00::7`, `10.96.0.8`), "Too many: 3: must have at most 2 items", vips(`10.96.0.7`, `fd00::7`)},
		{"vips of a family", balancer, vips(`10.96.0.7`, `10.96.0.8`), "two VIPs are one of IPv4 and, after it, one of IPv6", vips(`fd00::7`)},
		{"vips in disorder", balancer, vips(`fd00::7`, `10.96.0.7`), "two VIPs are one of IPv4 and, after it, one of IPv6", ``},
		{"vip form", balancer, vips(`10.96.0.7/16`), "write an IP address, as in 10.96.0.10 or fd00::a, without a prefix length", ``},
		{"vip canonical", balancer, vips(`fd00:0::7`), "write the IP address in its shortest form and in lower case, as in fd00::a", ``},
		{"vip long", balancer, vips(long(46)), "Too long: may not be more than 45", ``},
		{"vip subnet", balancer, `spec: {vips: [{ip: 10.96.0.7}]}`, "spec.vips[0].subnetID: Required value", ``},
		{"vip subnet empty", balancer, `spec: {vips: [{ip: 10.96.0.7, subnetID: ""}]}`, "spec.vips[0].subnetID in body should be at least 1 chars long", ``},
		{"vip subnet long", balancer, `spec: {vips: [{ip: 10.96.0.7, subnetID: ` + long(65) + `}]}`, "Too long: may not be more than 64", ``},
		{"project long", balancer, `spec: {projectID: ` + long(65) + `}`, "Too long: may not be more than 64", `spec: {projectID: p}`},
		{"provider long", balancer, `spec: {provider: ` + long(256) + `}`, "Too long: may not be more than 255", `spec: {provider: ovn}`},
		{"flavor long", balancer, `spec: {flavorID: ` + long(65) + `}`, "Too long: may not be more than 64", `spec: {flavorID: f}`},
		{"zone long", balancer, `spec: {availabilityZone: ` + long(256) + `}`, "Too long: may not be more than 255", `spec: {availabilityZone: z}`},
		{"listeners many", balancer, manyListeners(513), "Too many: 513: must have at most 512 items", manyListeners(512)},
		{"listener name long", balancer, listeners(`{protocol: TCP, port: 80, name: ` + long(64) + `}`), "Too long: may not be more than 63", listeners(``)},
		{"protocol", balancer, listeners(`{protocol: HTTP, port: 80}`), `supported values: "TCP", "UDP", "SCTP"`, listeners(`{protocol: SCTP, port: 80}`)},
		{"protocol missing", balancer, listeners(`{port: 80}`), "spec.listeners[0].protocol: Required value", ``},
		{"port low", balancer, listeners(`{protocol: TCP, port: 0}`), "should be greater than or equal to 1", listeners(`{protocol: TCP, port: 1}`)},
		{"port high", balancer, listeners(`{protocol: TCP, port: 65536}`), "should be less than or equal to 65535", listeners(`{protocol: TCP, port: 65535}`)},
		{"algorithm", balancer, listeners(`{protocol: TCP, port: 80, algorithm: RANDOM}`), `supported values: "ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"`, listeners(`{protocol: TCP, port: 80, algorithm: SOURCE_IP}`)},
		{"affinity low", balancer, listeners(`{protocol: TCP, port: 80, affinitySeconds: 0}`), "should be greater than or equal to 1", listeners(`{protocol: TCP, port: 80, affinitySeconds: 1}`)},
		{"affinity high", balancer, listeners(`{protocol: TCP, port: 80, affinitySeconds: 86401}`), "should be less than or equal to 86400", listeners(`{protocol: TCP, port: 80, affinitySeconds: 86400}`)},
		{"connections", balancer, listeners(`{protocol: TCP, port: 80, connectionLimit: 0}`), "should be greater than or equal to 1", listeners(`{protocol: TCP, port: 80, connectionLimit: 2147483647}`)},
		{"client timeout", balancer, listeners(`{protocol: TCP, port: 80, timeoutClientData: -1}`), "should be greater than or equal to 0", listeners(`{protocol: TCP, port: 80, timeoutClientData: 0}`)},
		{"client timeout high", balancer, listeners(`{protocol: TCP, port: 80, timeoutClientData: 31536000001}`), "should be less than or equal to 31536000000", listeners(`{protocol: TCP, port: 80, timeoutClientData: 31536000000}`)},
		{"member timeout", balancer, listeners(`{protocol: TCP, port: 80, timeoutMemberData: -1}`), "should be greater than or equal to 0", listeners(`{protocol: TCP, port: 80, timeoutMemberData: 31536000000}`)},
		{"connect timeout", balancer, listeners(`{protocol: TCP, port: 80, timeoutMemberConnect: -1}`), "should be greater than or equal to 0", listeners(`{protocol: TCP, port: 80, timeoutMemberConnect: 31536000000}`)},
		{"inspect timeout", balancer, listeners(`{protocol: TCP, port: 80, timeoutTCPInspect: -1}`), "should be greater than or equal to 0", listeners(`{protocol: TCP, port: 80, timeoutTCPInspect: 31536000000}`)},
		{"proxy protocol", balancer, listeners(`{protocol: TCP, port: 80, proxyProtocol: v1}`), `supported values: "PROXY", "PROXYV2"`, listeners(`{protocol: TCP, port: 80, proxyProtocol: PROXYV2}`)},
		{"members many", balancer, members(manyMembers(5001)), "Too many: 5001: must have at most 5000 items", members(manyMembers(5000))},
		{"member name long", balancer, members(`{ip: 10.1.0.5, port: 80, name: ` + long(321) + `}`), "Too long: may not be more than 320", members(`{ip: 10.1.0.5, port: 80}`)},
		{"member ip", balancer, members(`{port: 80}`), "members[0].ip: Required value", ``},
		{"member ip form", balancer, members(`{ip: web-0, port: 80}`), "should match '^[0-9a-f.:]+$'", members(`{ip: "fd00::5", port: 80}`)},
		{"member ip long", balancer, members(`{ip: ` + long(46) + `, port: 80}`), "Too long: may not be more than 45", ``},
		{"member port low", balancer, members(`{ip: 10.1.0.5, port: 0}`), "should be greater than or equal to 1", members(`{ip: 10.1.0.5, port: 1}`)},
		{"member port high", balancer, members(`{ip: 10.1.0.5, port: 65536}`), "should be less than or equal to 65535", members(`{ip: 10.1.0.5, port: 65535}`)},
		{"member subnet long", balancer, members(`{ip: 10.1.0.5, port: 80, subnetID: ` + long(65) + `}`), "Too long: may not be more than 64", ``},
		{"monitor type", balancer, monitor(`{type: PING, delay: 5, timeout: 3, maxRetries: 1, maxRetriesDown: 3}`), `supported values: "TCP", "UDP-CONNECT", "SCTP", "HTTP"`, monitor(`{type: TCP, delay: 5, timeout: 3, maxRetries: 1, maxRetriesDown: 3}`)},
		{"monitor timeout", balancer, monitor(`{type: TCP, delay: 5, timeout: 5, maxRetries: 1, maxRetriesDown: 3}`), "a check has to end before the next begins: lower timeout, or raise delay", monitor(`{type: TCP, delay: 5, timeout: 4, maxRetries: 1, maxRetriesDown: 3}`)},
		{"monitor delay", balancer, monitor(`{type: TCP, delay: 86401, timeout: 4, maxRetries: 1, maxRetriesDown: 3}`), "should be less than or equal to 86400", monitor(`{type: TCP, delay: 86400, timeout: 4, maxRetries: 1, maxRetriesDown: 3}`)},
		{"monitor retries", balancer, monitor(`{type: TCP, delay: 5, timeout: 4, maxRetries: 11, maxRetriesDown: 3}`), "should be less than or equal to 10", monitor(`{type: TCP, delay: 5, timeout: 4, maxRetries: 10, maxRetriesDown: 3}`)},
		{"monitor retries down", balancer, monitor(`{type: TCP, delay: 5, timeout: 4, maxRetries: 1, maxRetriesDown: 0}`), "should be greater than or equal to 1", monitor(`{type: TCP, delay: 5, timeout: 4, maxRetries: 1, maxRetriesDown: 1}`)},
		{"ranges many", balancer, `spec: {sourceRanges: ` + ranges(513) + `}`, "Too many: 513: must have at most 512 items", `spec: {sourceRanges: ` + ranges(512) + `}`},
		{"range form", balancer, `spec: {sourceRanges: [192.0.2.1]}`, "write each range as a prefix without host bits, as in 192.0.2.0/24 or 2001:db8::/32", `spec: {sourceRanges: [192.0.2.1/32, "2001:db8::/32"]}`},
		{"range with host bits", balancer, `spec: {sourceRanges: [192.0.2.1/24]}`, "write each range as a prefix without host bits", `spec: {sourceRanges: []}`},
		{"range long", balancer, `spec: {sourceRanges: [` + long(65) + `]}`, "Too long: may not be more than 64", ``},
		{"public network", balancer, `spec: {publicIP: {networkID: null, keep: true}}`, "spec.publicIP.networkID: Required value", `spec: {publicIP: null}`},
		{"public network empty", balancer, `spec: {publicIP: {networkID: ""}}`, "spec.publicIP.networkID in body should be at least 1 chars long", ``},
		{"public network long", balancer, `spec: {publicIP: {networkID: ` + long(65) + `}}`, "Too long: may not be more than 64", ``},
		{"public subnet long", balancer, `spec: {publicIP: {subnetID: ` + long(65) + `}}`, "Too long: may not be more than 64", ``},
		{"public address", balancer, `spec: {publicIP: {address: "2001:db8::1"}}`, "write an IPv4 address, as in 203.0.113.7, or leave it out for any: floating IPs are IPv4", `spec: {publicIP: {address: 203.0.113.7}}`},
		{"public address long", balancer, `spec: {publicIP: {address: ` + long(46) + `}}`, "Too long: may not be more than 45", ``},
	} {
		t.Run(r.base[30:strings.Index(r.base, "\nmeta")]+"/"+r.name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, nil)
			err := c.Create(t.Context(), object(t, r.base, r.refused))
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), r.message) {
				t.Errorf("Create with %s: got %v, want it refused with %q", r.refused, err, r.message)
			}
			create(t, c, object(t, r.base, r.accepted))
		})
	}
}

// object returns base with a merge patch, both in YAML.
func object(t *testing.T, base, patch string) *unstructured.Unstructured {
	t.Helper()
	var o, p map[string]any
	if err := yaml.Unmarshal([]byte(base), &o); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(patch), &p); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	merge(o, p)
	return &unstructured.Unstructured{Object: o}
}

// merge applies patch to o as RFC 7386 says.
func merge(o, patch map[string]any) {
	for k, v := range patch {
		child, nested := v.(map[string]any)
		into, there := o[k].(map[string]any)
		switch {
		case v == nil:
			delete(o, k)
		case nested && there:
			merge(into, child)
		default:
			o[k] = v
		}
	}
}

func create(t *testing.T, c client.Client, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatalf("Create of %v: %v", o.Object["spec"], err)
	}
	return o
}
