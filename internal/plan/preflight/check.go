// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight says what of a cloud and a cluster keeps Kuryr from serving pods and
// Services, from facts that were read before. Each finding has a name, a severity and a remedy.
// The package reads nothing itself.
//
// Some things no fact shows, so no check is made: whether nodes have a route to the pods' subnet,
// whether pods reach management networks, and what a credential may write.
package preflight

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Names of findings that other code acts on.
const (
	PublicNetworkMissing = "PublicNetworkMissing"
	// CloudUnavailable is the only finding about the cloud if that did not answer at all.
	CloudUnavailable = "CloudUnavailable"
)

// Kind is a kind of finding. Any kind may also be Unknown: then the check could not be made. A
// finding that may do no harm is a Warning, also if the kind is an Error.
type Kind struct {
	Name     string
	Severity Severity
	Part     bool   // no finding concerns more than a part: see Finding
	Meaning  string // in one sentence
}

// check finds what is wrong of one kind.
type check struct {
	Kind
	cloud bool // it needs an answer of the cloud
	// needs returns why the check could not find something. A run that says so itself needs nothing.
	needs func(f *Facts) error
	run   func(f *Facts, k Kind) []Finding
}

// checks are all checks, in the order of the report.
var checks = []check{
	{Kind{PublicNetworkMissing, Error, all, "Neutron does not show services.externalNetworkID, or it is not external."}, true, needNothing, publicNetworkMissing},
	{Kind{"PublicSubnetMissing", Error, all, "Neutron does not show services.externalSubnetID, or it is of another network."}, true, needNothing, publicSubnetMissing},
	{Kind{"PodSubnetMissing", Error, all, "Neutron does not show a subnet of pods.subnetIDs."}, true, needNothing, podSubnetMissing},
	{Kind{"PodNetworkMismatch", Error, all, "The pods' subnets are not of one network."}, true, needNetworks, podNetworkMismatch},
	{Kind{"ServiceSubnetMissing", Error, all, "Neutron does not show a subnet of services.subnetIDs."}, true, needNothing, serviceSubnetMissing},
	{Kind{"NetworkDown", Error, all, "A network of pods or Services is switched off."}, true, needNetworks, networkDown},
	{Kind{"PodSubnetNotRouted", Error, all, "No router has a port in a subnet of pods, which are to reach cluster IPs."}, true, needNothing, podSubnetNotRouted},
	{Kind{"ServiceSubnetNotRouted", Error, all, "No router has a port in a subnet of cluster IPs."}, true, needNothing, serviceSubnetNotRouted},
	{Kind{"RoutersDiffer", Warning, part, "Subnets of pods and of cluster IPs are on different routers."}, true, needRouters, routersDiffer},
	{Kind{"RouterDown", Error, all, "A router of pods, of namespaces or of Services is switched off."}, true, needRouters, routerDown},
	{Kind{"RouterWithoutGateway", Error, all, "The router of the cluster IPs has no gateway to services.externalNetworkID."}, true, needNothing, routerWithoutGateway},
	{Kind{"NetworkRouterMissing", Error, part, "Neutron does not show a router of networks or projects, or its external network, or the networks of namespaces have none."}, true, needNamespaces, networkRouterMissing},
	{Kind{"NetworkRouterWithoutGateway", Warning, part, "A router of networks or projects has no external gateway."}, true, needRoutersOfNamespaces, networkRouterWithoutGateway},
	{Kind{"ServiceInterfaceMissing", Error, part, "A router of networks, projects or given networks leads to no subnet of cluster IPs."}, true, needRoutersOfNamespaces, serviceInterfaceMissing},
	{Kind{"GivenNetworkMissing", Error, part, "Neutron does not show a network or subnet of networks.given or nodes, or they do not fit together."}, true, needNothing, givenNetworkMissing},
	{Kind{"GivenNetworkNotRouted", Error, part, "No router has a port in a subnet of networks.given or nodes."}, true, needNothing, givenNetworkNotRouted},
	{Kind{"ProjectMissing", Error, part, "Keystone does not know a project of projects, or it is disabled."}, true, needNothing, projectMissing},
	{Kind{"ProjectCredentialRefused", Error, part, "The cloud does not accept the credential of a project of projects, or it is of another project."}, true, needNothing, projectCredentialRefused},
	{Kind{"GatewayNotRouter", Warning, part, "The gateway of a subnet of pods is not the address of its router."}, true, needRouters, gatewayNotRouter},
	{Kind{"ServiceRouteMissing", Error, all, "Pods have no route to the cluster IPs, or a host route by way of an address outside of their subnet."}, true, needSubnets, serviceRouteMissing},
	{Kind{"ServiceRangeOutside", Error, all, "A ServiceCIDR is not within the subnets of services.subnetIDs."}, true, needNothing, serviceRangeOutside},
	{Kind{"ServiceRangeShared", Warning, part, "Neutron may give addresses of a ServiceCIDR to ports that are no load balancer's."}, true, needRanges, serviceRangeShared},
	{Kind{"DNSOutside", Error, all, "The cluster IP of the cluster's DNS is in no subnet of services.subnetIDs."}, true, needNothing, dnsOutside},
	{Kind{"AddressesOverlap", Warning, part, "A subnet of pods or Services has addresses of nodes, or one of pods those of a ServiceCIDR."}, true, needAddresses, addressesOverlap},
	{Kind{"NodeAgentDown", Error, part, "Neutron has no agent with the name of a node, or that agent is not alive, or it is ML2/OVS with the firewall iptables_hybrid."}, true, needNothing, nodeAgentDown},
	{Kind{"SecurityGroupMissing", Error, all, "Neutron does not show a security group of pods or projects."}, true, needNothing, securityGroupMissing},
	{Kind{"SecurityGroupRuleMissing", Warning, part, "The security groups of pods do not let in nodes, other pods, or cluster IPs where the provider is ovn."}, true, needRules, securityGroupRuleMissing},
	{Kind{"SecurityGroupsEmpty", Warning, part, "pods.securityGroupIDs is empty, so pods have no traffic."}, true, needNothing, securityGroupsEmpty},
	{Kind{"LoadBalancingMissing", Error, all, "The cloud has no load balancers, and services.subnetIDs is set."}, true, needNothing, loadBalancingMissing},
	{Kind{"ProviderMissing", Error, all, "Octavia does not have the provider services.provider."}, true, needProviders, providerMissing},
	{Kind{"OctaviaOld", Warning, part, "Octavia is older than those that Kuryr was shown with."}, true, needNothing, octaviaOld},
	{Kind{"ExtensionMissing", Error, all, "Neutron does not have an extension that the configuration needs."}, true, needNothing, extensionMissing},
	{Kind{"BindingHidden", Warning, part, "The credential most likely may not bind ports to nodes."}, true, needPort, bindingHidden},
	{Kind{"PortQuotaShort", Warning, part, "The quota of ports has no room for the pools' min and the load balancers."}, true, needNothing, portQuotaShort},
	{Kind{"SubnetFull", Warning, part, "A subnet of pods has no room for the pools' min."}, true, needNothing, subnetFull},
	{Kind{"BalancingQuotaShort", Warning, part, "A quota of Octavia is below what the Services need, with room for one load balancer more."}, true, needNothing, balancingQuotaShort},
	{Kind{"MTUMismatch", Warning, part, "The MTU of the pods' network does not fit node.mtu, the Services' network or IPv6."}, true, needNetworks, mtuMismatch},
	{Kind{"PoliciesNotEnforced", Warning, part, "The cluster has NetworkPolicies, which Kuryr does not enforce."}, false, needNothing, policiesNotEnforced},
}

// Check makes all checks.
func Check(f Facts) Report {
	var r Report
	outage := f.outage()
	if outage != nil {
		r.Findings = append(r.Findings, Finding{
			Name: CloudUnavailable, Severity: Unknown, Object: "Neutron",
			Message: "Nothing of the cloud was checked: " + outage.Error() + ".",
			Remedy:  []string{"openstack endpoint list --service network", "openstack extension list --network"},
		})
	} else {
		r.Passed = append(r.Passed, CloudUnavailable)
	}
	for _, c := range checks {
		if c.cloud && outage != nil {
			continue
		}
		found := c.run(&f, c.Kind)
		if err := c.needs(&f); err != nil {
			message := "The check was not made"
			if len(found) > 0 {
				message = "A part of the check was not made"
			}
			found = append(found, c.notMade("check "+c.Name, message, err)...)
		}
		if len(found) == 0 {
			r.Passed = append(r.Passed, c.Name)
		}
		r.Findings = append(r.Findings, found...)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
	return r
}

// outage returns why the cloud answered nothing; nil: it answered something. Extensions and subnets
// are always read, security groups only if the configuration names any.
func (f *Facts) outage() error {
	first := f.Networks.Extensions.Err
	reads := []error{first, f.Networks.Subnets.Err}
	if len(f.Config.SecurityGroupIDs)+len(f.Config.MoreGroupIDs)+len(f.Config.Groups) > 0 {
		reads = append(reads, f.Networks.SecurityGroups.Err)
	}
	for _, err := range reads {
		if err == nil || !errors.Is(err, sdn.ErrUnavailable) && !errors.Is(err, sdn.ErrForbidden) {
			return nil
		}
	}
	return first
}

func rank(s Severity) int { return slices.Index([]Severity{Error, Warning, Unknown}, s) }

// unknown is the finding of a check that could not be made, and why.
func (k Kind) unknown(object, what string, err error) []Finding {
	return k.notMade(object, "It is unknown whether "+what, err)
}

func (k Kind) notMade(object, message string, err error) []Finding {
	return []Finding{{
		Name: k.Name, Severity: Unknown, Object: object, Message: message + ": " + err.Error() + ".",
		Unavailable: errors.Is(err, sdn.ErrUnavailable),
	}}
}

// found is a finding of this kind.
func (k Kind) found(object, message string, remedy ...string) Finding {
	return Finding{Name: k.Name, Severity: k.Severity, Part: k.Part, Object: object, Message: message, Remedy: remedy}
}

// warning is a finding of this kind that may do no harm, because of what no fact shows.
func (k Kind) warning(object, message string, remedy ...string) Finding {
	k.Severity = Warning
	return k.found(object, message, remedy...)
}

// missing is the finding about what the cloud does not show of a field.
func (k Kind) missing(what, field, effect, command string) Finding {
	return k.found(what+" of "+field, "Neutron does not show "+what+": it does not exist, or Kuryr's credential does not see it. "+effect, command, editConfig)
}

// Severity says what a finding means for users.
type Severity string

const (
	// Error is a finding with which pods or Services do not work.
	Error Severity = "Error"
	// Warning is a finding that will harm later, or part of what Kuryr serves.
	Warning Severity = "Warning"
	// Unknown is a check that could not be made, because the credential may not read, or the
	// cloud did not answer.
	Unknown Severity = "Unknown"
)

// Finding is one thing that is wrong.
type Finding struct {
	Name     string   `json:"name"`     // in CamelCase, for scripts: the same in each version
	Severity Severity `json:"severity"` // what it means
	// Part says that it concerns a single project, namespace, node or Service, some pods, or nothing
	// that there is. Any other one concerns all pods or all Services, or all public ones.
	Part    bool     `json:"-"`
	Object  string   `json:"object"`  // what it is about, with the field of the configuration that names it
	Message string   `json:"message"` // what is wrong, and what follows from it
	Remedy  []string `json:"remedy"`  // commands that mend it, in order; empty: Message says what to do
	// Unavailable says of an Unknown one that a request was not answered. Then findings of earlier
	// checks of this name may still hold.
	Unavailable bool `json:"-"`
}

// Report is the result of all checks.
type Report struct {
	Findings []Finding `json:"findings"` // errors first, then warnings; else in the order of the checks
	Passed   []string  `json:"passed"`   // names of the checks without a finding
}

// Whom findings of a kind concern at most: see Finding.Part.
const all, part = false, true

// Holds reports whether a first start is to wait until a finding is mended: it is an error about
// what all pods or all Services need, or nothing of the cloud could be checked.
func Holds(f Finding) bool {
	return f.Name == CloudUnavailable || f.Severity == Error && !f.Part && slices.Contains(Holding(), f.Name)
}

// Holding returns the names of the findings that may hold a first start.
func Holding() []string {
	names := []string{CloudUnavailable}
	for _, c := range checks {
		if !c.Part {
			names = append(names, c.Name)
		}
	}
	return names
}

// ifAll returns the kind for findings that concern as many as the kind says only if all is true.
func (k Kind) ifAll(all bool) Kind {
	k.Part = k.Part || !all
	return k
}

// all reports whether it concerns all pods or all Services that some subnets are broken. Pods get
// addresses of the first subnet of each entry until it is full. All pods need the cluster's DNS.
// Another Service works if it has a cluster IP in another subnet.
func (f *Facts) all(broken func(subnetID string) bool) bool {
	if slices.ContainsFunc(f.Config.PodSubnets, func(entry []string) bool { return broken(entry[0]) }) {
		return true
	}
	work := f.subnets(slices.DeleteFunc(slices.Clone(f.Config.ServiceSubnetIDs), broken))
	works := func(s Service) bool { return s.in(work) }
	return slices.ContainsFunc(f.Config.ServiceSubnetIDs, broken) && (!slices.ContainsFunc(f.Cluster.Services.Value, works) ||
		slices.ContainsFunc(f.Cluster.Services.Value, func(s Service) bool { return s.DNS && !works(s) }))
}

// in reports whether a Service has a cluster IP in one of these subnets.
func (s Service) in(subnets []sdn.SurveyedSubnet) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(ip netip.Addr) bool { return within(subnets, netip.PrefixFrom(ip, ip.BitLen())) })
}

// What a check needs to have been read. Without it a check that found nothing has checked nothing.

func needSubnets(f *Facts) error { return f.Networks.Subnets.Err }

func needNetworks(f *Facts) error {
	return cmp.Or(f.Networks.Subnets.Err, f.Networks.Networks.Err)
}

func needRouters(f *Facts) error {
	if !f.routed() {
		return nil
	}
	return f.Networks.Routers.Err // it is the error of subnets and interfaces, too, if these were not read
}

func needRanges(f *Facts) error {
	err := f.Cluster.ServiceCIDRs.Err
	if !f.serves() || errors.Is(err, sdn.ErrNotFound) {
		return nil
	}
	return cmp.Or(f.Networks.Subnets.Err, err)
}

func needAddresses(f *Facts) error {
	return cmp.Or(needRanges(f), needNetworks(f), f.Cluster.Nodes.Err)
}

func needProviders(f *Facts) error {
	if !f.serves() || f.Config.Provider == "" || errors.Is(f.Balancing.Providers.Err, sdn.ErrNoService) {
		return nil
	}
	return f.Balancing.Providers.Err
}

// needPort is for what the ports of routers show.
func needPort(f *Facts) error {
	if f.Networks.RouterInterfaces.Err != nil {
		return f.Networks.RouterInterfaces.Err
	}
	if n, _ := f.network(f.Config.PodSubnetIDs()); n.Type != "" {
		return nil // the credential is an administrator's
	}
	if f.Networks.BindsShown == nil && f.routed() {
		if err := f.Networks.Networks.Err; err != nil {
			return err
		}
		return errors.New("Neutron shows no port of a router; connect the pods' subnet to a router, then run again")
	}
	return nil
}

func needNothing(*Facts) error { return nil }
