// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"errors"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Subject is what a request to the SDN is about.
type Subject int

const (
	// Port is a port of a pod. Its advice has the placeholder {node}.
	Port Subject = iota
	// ParentPort is the port of a node that is a virtual machine. Its advice has the placeholders
	// {vifType}, {within}, {trunk} and {project}.
	ParentPort
	// LoadBalancer is a load balancer with all its parts and its floating IP.
	LoadBalancer
	// Subnet is a subnet of the configuration.
	Subnet
	// Network is the network of a namespace with its subnets and their router interfaces.
	Network
)

// Retry says when a request is sent again.
type Retry int

const (
	// Soon retries after a pause that grows with each failure, up to Backoff.Max.
	Soon Retry = iota
	// Never does not retry: something else must change first.
	Never
	// Told retries when the error says.
	Told
	// Late retries after Backoff.Quota: a quota must be raised, or something deleted.
	Late
	// RetryAfterConfigChange retries after Backoff.Rejected: the configuration or the cloud must be changed.
	RetryAfterConfigChange
	// Slower retries like Soon, but with pauses up to Backoff.Rejected. Each try is expensive, and
	// a person may have to act.
	Slower
	// Quick retries like Soon, from a tenth of a second on: the other change is done soon. The
	// pause still grows, as a lasting conflict is no reason for constant requests.
	Quick
)

// row is the meaning of one kind of error.
type row struct {
	err    error            // an error for errors.Is
	is     func(error) bool // used in place of err
	of     []Subject        // empty: all subjects
	reason string
	retry  Retry
	// lasting reports that the answer stays the same until a person acts.
	lasting bool
	advice  map[Subject]string // what a person can do
	always  string             // the same for all subjects
}

// table has the meaning of all errors. The first row that fits counts.
var table = []row{
	{
		err: sdn.ErrNoService, of: []Subject{LoadBalancer}, reason: v1.ReasonNoLoadBalancing, retry: RetryAfterConfigChange, lasting: true,
		advice: map[Subject]string{LoadBalancer: ". Install Octavia, or remove services.subnetIDs from Kuryr's configuration. " +
			"If the cloud has no Octavia any more and a Service stays in deletion: clear the status of its KuryrLoadBalancer, with the command of docs/services.md, section Deleting"},
	},
	{
		err: sdn.ErrUnsupported, of: []Subject{LoadBalancer}, reason: v1.ReasonNotSupported, retry: RetryAfterConfigChange, lasting: true,
		advice: map[Subject]string{LoadBalancer: ". Choose another provider for the Service (annotation openstack.org/kuryr-provider, or services.provider in Kuryr's configuration), " +
			"or remove from the Service what is not supported"},
	},
	{
		err: ErrNotPermitted, of: []Subject{LoadBalancer}, reason: v1.ReasonForbidden, retry: RetryAfterConfigChange, lasting: true,
		advice: map[Subject]string{LoadBalancer: ". Apply the Role kuryr-controller of this version of Kuryr, and let admission policies permit Services of type ExternalName in Kuryr's namespace"},
	},
	{is: func(err error) bool { return err == nil }, reason: v1.ReasonReady, retry: Never},
	{is: func(err error) bool { return errors.As(err, new(*sdn.PendingError)) }, reason: v1.ReasonPending, retry: Told, advice: map[Subject]string{ParentPort: again}},
	{
		err: sdn.ErrOverlap, of: []Subject{Network}, reason: v1.ReasonOverlap, retry: RetryAfterConfigChange, lasting: true,
		advice: map[Subject]string{Network: ". Give networks.ranges or the subnet pools of Kuryr's configuration prefixes that nothing else behind the router has, or remove the other subnet from the router"},
	},
	{
		err: sdn.ErrExternalAddresses, of: []Subject{Network}, reason: v1.ReasonExternalNetworkFull, retry: Late,
		advice: map[Subject]string{Network: ". Add an allocation pool or a subnet to the external network, delete unused floating IPs and routers there, " +
			"or name another network (router.externalNetworkID of networks, networks.namespaces or projects in Kuryr's configuration). Kuryr then continues by itself"},
	},
	{
		err: sdn.ErrAddresses, of: []Subject{Network}, reason: v1.ReasonSubnetExhausted, retry: Late,
		advice: map[Subject]string{Network: ". Add a prefix to the subnet pool (openstack subnet pool set --pool-prefix), or delete unused subnets of it. Kuryr then continues by itself"},
	},
	{
		err: sdn.ErrRouterFull, of: []Subject{Network}, reason: v1.ReasonRouterFull, retry: Late,
		advice: map[Subject]string{Network: ". Raise the quota of ports of the router's project, or let namespaces use another router (networks.namespaces[].routerID in Kuryr's configuration). Kuryr then continues by itself"},
	},
	{
		is: addressesUsed, reason: v1.ReasonSubnetExhausted, retry: Late,
		advice: map[Subject]string{
			Port:       ". Give pods a larger subnet, or delete unused ports there. Kuryr then continues by itself",
			ParentPort: again,
		},
	},
	{
		err: sdn.ErrQuota, reason: v1.ReasonOverQuota, retry: Late,
		advice: map[Subject]string{
			Port:       ". Raise the quota of ports (or addresses) in the cloud, or delete unused ones. Kuryr then continues by itself",
			ParentPort: again,
			Network:    ". Raise the project's quota of networks, subnets, routers or ports in the cloud, or delete unused ones. Kuryr then continues by itself",
			LoadBalancer: ". Raise the quota of load balancers, listeners, pools, members, ports, floating IPs, security groups or their rules in the cloud, " +
				"or delete unused ones. Kuryr then continues by itself",
		},
	},
	// The error itself says what is not supported: another ID would not help.
	{
		is: func(err error) bool { return errors.Is(err, sdn.ErrUnsupported) && errors.Is(err, sdn.ErrInvalid) },
		of: []Subject{Port}, reason: v1.ReasonRejected, retry: RetryAfterConfigChange, lasting: true,
	},
	{
		err: sdn.ErrInvalid, reason: v1.ReasonRejected, retry: RetryAfterConfigChange, lasting: true,
		advice: map[Subject]string{
			Port: ". Check networkID, subnetIDs and securityGroupIDs under pods in Kuryr's configuration. A change takes effect without a restart",
			ParentPort: ". Set nodes[].parentSubnetIDs in Kuryr's configuration to the subnets of the machines' own ports, " +
				"or set another vifType if the node is not a virtual machine",
			LoadBalancer: ". Check {fields}. Kuryr tries again",
			Network:      ". Check {networkFields}. Kuryr tries again",
		},
	},
	{
		err: sdn.ErrLogin, reason: v1.ReasonForbidden, retry: RetryAfterConfigChange, lasting: true,
		always: ". Check the credential in the Secret with clouds.yaml, and that its user, its project and the user's role there exist and are enabled. " +
			"Kuryr reads the Secret again and tries again by itself",
	},
	{
		err: sdn.ErrSNATForbidden, of: []Subject{Network}, reason: v1.ReasonForbidden, retry: RetryAfterConfigChange, lasting: true,
		advice: map[Subject]string{Network: ". In Neutron's default policy only administrators may choose whether a router translates addresses. Leave out router.snat in Kuryr's configuration " +
			"(of networks, networks.namespaces or projects), which is the cloud's default, or give Kuryr's user the role admin, or have the policy allow it"},
	},
	{
		err: sdn.ErrForbidden, reason: v1.ReasonForbidden, retry: RetryAfterConfigChange, lasting: true,
		advice: map[Subject]string{
			Port:       ". Check Kuryr's credential and its roles in the project of the ports",
			ParentPort: again,
			LoadBalancer: ". Check Kuryr's credential and its roles in the project of the load balancers: Octavia wants the role load-balancer_member. " +
				"An application credential that is older than the role lacks it",
			Network: ". Check Kuryr's credential and its roles in the project of the network: another project than the credential's needs the role admin, or a policy that lets Kuryr make networks there",
		},
	},
	{
		err: sdn.ErrUnbound, reason: v1.ReasonHostUnusable, retry: Slower,
		advice: map[Subject]string{
			Port:       ". Check that Neutron has an agent for host {node}, with exactly this name, and that it runs",
			ParentPort: again,
		},
	},
	{
		err: sdn.ErrConflict, reason: v1.ReasonConflict, retry: Quick,
		advice: map[Subject]string{
			ParentPort:   again,
			LoadBalancer: ". Another user of the cloud may have changed it at the same time. Kuryr reads it again and retries",
			Network:      again,
		},
	},
	{err: sdn.ErrNotFound, of: []Subject{Port}, reason: v1.ReasonPortMissing, retry: Never, lasting: true},
	{err: sdn.ErrNotFound, of: []Subject{Subnet}, reason: v1.ReasonPortMissing, lasting: true},
	{
		err: sdn.ErrNotFound, reason: v1.ReasonPortMissing,
		advice: map[Subject]string{
			ParentPort: ". Kuryr's configuration (vifType {vifType}) says that the node is a virtual machine. It needs a port with that address{within}{trunk}, " +
				"which Kuryr's credential may see, in {project}",
			LoadBalancer: again,
			Network:      again,
		},
	},
	{err: sdn.ErrUnavailable, reason: v1.ReasonUnavailable, always: again},
	{is: func(error) bool { return true }, reason: v1.ReasonBackendError, always: again},
}

// again is the advice for an outage.
const again = ". Kuryr tries again by itself"

// fields names the places in a Service and in the configuration that the cloud may have rejected.
// The key is the rejected field of a load balancer.
var fields = map[sdn.Field]string{
	"":                        "the Service's annotations and services in Kuryr's configuration",
	sdn.FieldProvider:         "the Service's annotation openstack.org/kuryr-provider, and services.provider in Kuryr's configuration",
	sdn.FieldFlavor:           "the Service's annotation loadbalancer.openstack.org/flavor-id, and services.flavorID in Kuryr's configuration",
	sdn.FieldAvailabilityZone: "the Service's annotation loadbalancer.openstack.org/availability-zone",
	sdn.FieldExternalNetwork: "the Service's annotations loadbalancer.openstack.org/floating-network-id and loadbalancer.openstack.org/floating-subnet-id, " +
		"and services.externalNetworkID and services.externalSubnetID in Kuryr's configuration",
	sdn.FieldSubnet:  subnets,
	sdn.FieldNetwork: subnets,
	sdn.FieldMember:  "the addresses in the Service's EndpointSlices",
}

const subnets = "services.subnetIDs and services.nodeSubnetIDs in Kuryr's configuration, " +
	"and the Service's annotation loadbalancer.openstack.org/member-subnet-id"

// networkFields is fields for the network of a namespace.
var networkFields = map[sdn.Field]string{
	"":               "networks, projects and pods in Kuryr's configuration",
	sdn.FieldProject: "the namespace's annotation openstack.org/kuryr-project, and projects and pods.projectID in Kuryr's configuration",
	sdn.FieldRouter:  "networks.routerID, and routerID of networks.namespaces and projects in Kuryr's configuration",
	sdn.FieldExternalNetwork: "router.externalNetworkID of networks, networks.namespaces and projects in Kuryr's configuration: it has to be an external network that Kuryr's credential sees, " +
		"and that overlaps with no subnet of the namespace",
	sdn.FieldRouterRoutes: "router.routes of networks, networks.namespaces and projects in Kuryr's configuration: each gateway has to be an address of the external network, and not the router's own",
	sdn.FieldSubnetPool:   "networks.subnetPoolIDs, and subnetPoolIDs of networks.namespaces and projects in Kuryr's configuration",
	sdn.FieldNetwork:      givenNetworks,
	sdn.FieldSubnet:       givenNetworks,
	sdn.FieldDNSServers:   "networks.dnsServers in Kuryr's configuration: an unconfigured Neutron takes five for a subnet (max_dns_nameservers in neutron.conf)",
	sdn.FieldRoutes:       "networks.routes in Kuryr's configuration: an unconfigured Neutron takes twenty for a subnet (max_subnet_host_routes in neutron.conf)",
}

const givenNetworks = "networks.given, and networkID and subnetIDs of pods in Kuryr's configuration"

// placesOf returns the places of fields, or of networkFields, that err is about.
func placesOf(all map[sdn.Field]string, err error) string {
	if text, ok := all[sdn.FieldOf(err)]; ok {
		return text
	}
	return all[""]
}

func (r *row) fits(s Subject, err error) bool {
	if len(r.of) > 0 && !slices.Contains(r.of, s) {
		return false
	}
	if r.is != nil {
		return r.is(err)
	}
	return errors.Is(err, r.err)
}

func addressesUsed(err error) bool {
	var full *sdn.QuotaError
	return errors.As(err, &full) && full.Scope.Subnet
}
