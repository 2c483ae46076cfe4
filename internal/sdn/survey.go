// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"context"
	"net/netip"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Survey reads what has to be in a cloud before Kuryr can serve pods and Services. It changes
// nothing and keeps nothing: each call reads anew. It never fails as a whole. What could not be
// read has an error of its own: ErrForbidden, ErrNotFound (the cloud has no such part),
// ErrNoService or ErrUnavailable.
type Survey interface {
	// SurveyNetworks costs at most eight requests, one more for each project, and one more for each
	// further hundred IDs of a kind. Each further part of a query costs what NetworkQuery says.
	// Independent requests are sent at the same time.
	SurveyNetworks(ctx context.Context, q NetworkQuery) NetworkSurvey
	// SurveyBalancing costs at most two requests. An empty project is the credential's.
	SurveyBalancing(ctx context.Context, projectID string) BalancingSurvey
}

// Read is a value that was read, or why it could not be.
type Read[T any] struct {
	Value T
	Err   error
}

// NetworkQuery names what a survey is about. An empty ID of another kind than a project is ignored.
type NetworkQuery struct {
	ProjectIDs       []string // of the quotas; an empty one is the credential's own
	SubnetIDs        []string
	NetworkIDs       []string // besides the networks of the subnets
	SecurityGroupIDs []string
	// RouterIDs are routers besides those with interfaces in the subnets.
	RouterIDs []string
	// KnownProjectIDs are projects that are looked up in the identity service: one request each.
	KnownProjectIDs []string
}

// NetworkSurvey is the answer to a NetworkQuery. What the cloud does not have, or does not show to
// the credential, is missing in its list.
type NetworkSurvey struct {
	ProjectID        string         // the credential's; empty: it is not known
	Extensions       Read[[]string] // aliases, sorted
	Subnets          Read[map[string]SurveyedSubnet]
	Networks         Read[map[string]SurveyedNetwork]
	RouterInterfaces Read[[]RouterInterface] // of all routers on the networks
	Routers          Read[map[string]Router]
	// Addresses is usage and number of the addresses in allocation pools, by subnet. A cloud may
	// show it to administrators only: then it is empty.
	Addresses Read[map[string]Usage]
	// Quotas is usage and limit by the cloud's word for a kind, as in port, by project.
	Quotas         map[string]Read[map[string]Usage]
	SecurityGroups Read[map[string]SurveyedGroup]
	// Projects are those of NetworkQuery.KnownProjectIDs: whether each is enabled. One that the
	// credential may not look up is in Hidden, one that does not exist in neither.
	Projects Read[SurveyedProjects]
	// Credentials says, by project with a credential of its own, why that cannot be used: the cloud
	// does not accept it, or it is of another project. One that can be used has no entry.
	Credentials map[string]error
	// Agents are what passes traffic on hosts. A cloud may show them to administrators only: then
	// it is empty.
	Agents Read[[]Agent]
	// BindsShown says whether ports show the host that they are bound to, which a cloud shows to
	// those who may choose it. nil: no port was shown at all.
	BindsShown *bool
}

// SurveyedSubnet is a subnet.
type SurveyedSubnet struct {
	ID, Name, NetworkID string
	Prefix              netip.Prefix
	Gateway             netip.Addr // zero: none
	Routes              []v1.Route
	Pools               []AddressRange // that ports without a given address get one of
}

// SurveyedProjects is what an identity service says of projects.
type SurveyedProjects struct {
	Enabled map[string]bool // of those that exist
	Hidden  []string        // the credential may not look these up; sorted
}

// SurveyedGroup is a security group. In is what it lets in.
type SurveyedGroup struct {
	ID, Name string
	In       []SurveyedRule
}

// SurveyedRule lets packets in, of any or of some protocols and ports.
type SurveyedRule struct {
	IPv6        bool
	Remote      netip.Prefix // of the senders; zero: any, if RemoteGroup is empty
	RemoteGroup string       // ID of the senders' security group, or of an address group
}

// AddressRange is a range of addresses, both ends included.
type AddressRange struct{ First, Last netip.Addr }

// Contains reports whether an address is in the range.
func (r AddressRange) Contains(a netip.Addr) bool {
	return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// SurveyedNetwork is a network.
type SurveyedNetwork struct {
	ID, Name  string
	ProjectID string // whose network it is, who sees all of its ports
	MTU       int32
	External  bool // it has floating IPs
	Down      bool // it is switched off (admin_state_up)
	// Type is geneve, vxlan, vlan, flat or another one; empty: the cloud shows it to administrators
	// only. A network with a Physical one may have machines that the cloud does not know.
	Type, Physical string
	Unfiltered     bool // its ports have no security groups, unless a port says otherwise
}

// RouterInterface is a router's port in a subnet.
type RouterInterface struct {
	RouterID, NetworkID, SubnetID string
	Address                       netip.Addr
}

// Router is a router.
type Router struct {
	ID, Name        string
	ExternalNetwork string // that its gateway is in; empty: none
	Down            bool   // it is switched off (admin_state_up)
	Routes          []v1.Route
}

// Agent is what passes traffic on a host.
type Agent struct {
	Type, Host string
	Alive      bool
	Hybrid     bool // security groups need a Linux bridge between port and switch, which Kuryr does not make
}

// BalancingSurvey is what a cloud says of load balancing.
type BalancingSurvey struct {
	// Old is the version of the API if it is of an OpenStack before Zed, else empty.
	Old       Read[string]
	Providers Read[[]string]
	// Quotas is the limit by the cloud's word for a kind, as in load_balancer; negative: none.
	Quotas Read[map[string]int]
}
