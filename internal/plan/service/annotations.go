// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Prefixes of annotations of Services: those of the OpenStack cloud provider, which have the same
// meaning here, and Kuryr's own.
const (
	octavia = "loadbalancer.openstack.org/"
	beta    = "service.beta.kubernetes.io/"
	kuryr   = "openstack.org/kuryr-"
)

// Annotations that Kuryr supports.
const (
	annotationInternal         = beta + "openstack-internal-load-balancer"
	annotationSourceRanges     = beta + "load-balancer-source-ranges"
	annotationConnectionLimit  = octavia + "connection-limit"
	annotationFloatingNetwork  = octavia + "floating-network-id"
	annotationFloatingSubnet   = octavia + "floating-subnet-id"
	annotationKeepFloatingIP   = octavia + "keep-floatingip"
	annotationAddress          = octavia + "load-balancer-address"
	annotationHostname         = octavia + "hostname"
	annotationMethod           = octavia + "lb-method"
	annotationProxyProtocol    = octavia + "proxy-protocol"
	annotationSubnet           = octavia + "subnet-id"
	annotationMemberSubnet     = octavia + "member-subnet-id"
	annotationFlavor           = octavia + "flavor-id"
	annotationZone             = octavia + "availability-zone"
	annotationClientData       = octavia + "timeout-client-data"
	annotationMemberData       = octavia + "timeout-member-data"
	annotationMemberConnect    = octavia + "timeout-member-connect"
	annotationTCPInspect       = octavia + "timeout-tcp-inspect"
	annotationMonitor          = octavia + "enable-health-monitor"
	annotationMonitorDelay     = octavia + "health-monitor-delay"
	annotationMonitorTimeout   = octavia + "health-monitor-timeout"
	annotationMonitorTries     = octavia + "health-monitor-max-retries"
	annotationMonitorTriesDown = octavia + "health-monitor-max-retries-down"

	annotationProvider        = kuryr + "provider"
	annotationKuryrClientData = kuryr + "timeout-client-data"
	annotationKuryrMemberData = kuryr + "timeout-member-data"
)

// supported annotations. The value says whether only a Service of type LoadBalancer can use the
// annotation.
var supported = map[string]bool{
	annotationInternal: true, annotationFloatingNetwork: true, annotationFloatingSubnet: true,
	annotationKeepFloatingIP: true, annotationAddress: true, annotationHostname: true,

	annotationConnectionLimit: false, annotationMethod: false, annotationProxyProtocol: false, annotationSubnet: false,
	annotationMemberSubnet: false, annotationFlavor: false, annotationZone: false, annotationClientData: false,
	annotationMemberData: false, annotationMemberConnect: false, annotationTCPInspect: false, annotationMonitor: false,
	annotationMonitorDelay: false, annotationMonitorTimeout: false, annotationMonitorTries: false, annotationMonitorTriesDown: false,
	annotationProvider: false, annotationKuryrClientData: false, annotationKuryrMemberData: false,
}

const passedOn = "Kuryr's load balancers forward TCP and UDP unchanged: use an ingress controller behind the Service for this, and remove the annotation"

// unsupported annotations of the cloud provider, and what to use instead.
var unsupported = map[string]string{
	octavia + "floating-subnet":           "write the ID of the subnet into " + annotationFloatingSubnet + " instead",
	octavia + "floating-subnet-tags":      "write the ID of the subnet into " + annotationFloatingSubnet + " instead",
	octavia + "class":                     "write the network and subnet of the class into " + annotationFloatingNetwork + " and " + annotationFloatingSubnet + " instead",
	octavia + "port-id":                   "the VIP is the Service's cluster IP, on a port that Octavia creates for it: remove the annotation",
	octavia + "x-forwarded-for":           passedOn,
	octavia + "default-tls-container-ref": passedOn,
}

// pointless annotations of the cloud provider: Kuryr always does what they request, or offers no
// choice.
var pointless = map[string]string{
	octavia + "network-id":       "the VIP is the Service's cluster IP, in its own subnet: you can remove the annotation",
	octavia + "node-selector":    "members are the endpoints themselves, not the nodes: you can remove the annotation",
	octavia + "load-balancer-id": "no two Services share a load balancer or its address: make one Service with the ports of both, or remove the annotation",
}

// ours are the prefixes of annotations for load balancers of OpenStack. Kuryr knows all of them.
var ours = []string{octavia, kuryr, beta + "openstack-"}

// forgotten annotations are those of an earlier Kuryr.
var forgotten = []string{kuryr + "lbaas-spec", kuryr + "lbaas-state", kuryr + "counter"}

// field returns the path of an annotation.
func field(annotation string) string { return "metadata.annotations[" + annotation + "]" }

// spelling notes unknown annotations, and known ones without effect.
func (p *planner) spelling() {
	for name, value := range p.Service.Annotations {
		forBalancers, known := supported[name]
		switch {
		case p.theirs(name):
		case known && forBalancers && !p.external():
			p.tell(field(name), "it has an effect only on Services of type LoadBalancer: remove it, or set spec.type")
		case known, slices.Contains(forgotten, name):
		case unsupported[name] != "" && value != "false":
			p.warn(ReasonUnsupported, field(name), "%s", unsupported[name])
		case unsupported[name] != "":
		case pointless[name] != "":
			p.tell(field(name), "%s", pointless[name])
		case slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(strings.ToLower(name), prefix) }):
			p.warn(ReasonUnknown, field(name), "there is no such annotation: correct or remove it")
		}
	}
}

// theirs reports whether an annotation is for the controller that makes the Service public in place
// of Kuryr.
func (p *planner) theirs(name string) bool {
	return Foreign(p.Service) && (strings.HasPrefix(name, octavia) || strings.HasPrefix(name, beta))
}

// text returns the value of an annotation; empty if it is missing, or for another controller.
func (p *planner) text(name string) string {
	if p.theirs(name) {
		return ""
	}
	return strings.TrimSpace(p.Service.Annotations[name])
}

// yes reads an annotation that is true or false. An invalid value counts as otherwise, the harmless
// value.
func (p *planner) yes(name string, otherwise bool) bool {
	value := p.text(name)
	if value == "" {
		return false
	}
	yes, err := strconv.ParseBool(value)
	if err != nil {
		p.warn(ReasonInvalid, field(name), "%q is neither true nor false, and counts as %v", clip(value), otherwise)
		return otherwise
	}
	return yes
}

// number reads an annotation that is an integer; nil if it is missing or invalid.
func (p *planner) number(name, unit string, low, high int64) *int64 {
	value := p.text(name)
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		p.warn(ReasonInvalid, field(name), "%q is no whole number of %s from %d to %d, and is ignored", clip(value), unit, low, high)
		return nil
	}
	return &n
}

var idForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// id reads an annotation that is an ID in the cloud; empty if it is missing or invalid. It returns
// lower case letters: the cloud accepts capitals and answers in lower case.
func (p *planner) id(name, kind string) string {
	value := p.text(name)
	if value == "" || idForm.MatchString(value) {
		return strings.ToLower(value)
	}
	p.warn(ReasonInvalid, field(name), "%q is no UUID: write the ID that 'openstack %s show -c id NAME' prints", clip(value), kind)
	return ""
}

// clip shortens the value of an annotation for a note.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// annotationTopology requests the same as spec.trafficDistribution.
const annotationTopology = "service.kubernetes.io/topology-mode"

// unsupported notes the fields that Kuryr does not follow, or not yet.
func (p *planner) unsupported() {
	svc := p.Service.Spec
	p.traffic()
	p.nodes()
	if svc.LoadBalancerIP != "" && !p.external() && !Foreign(p.Service) {
		p.tell("spec.loadBalancerIP", "it has an effect only on Services of type LoadBalancer: remove it, or set spec.type")
	}
}

// traffic notes requests about the path of traffic.
func (p *planner) traffic() {
	svc := p.Service.Spec
	if policy := svc.InternalTrafficPolicy; policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal {
		p.warn(ReasonUnsupported, "spec.internalTrafficPolicy", "a load balancer does not know the client's node: all endpoints get traffic, as with Cluster")
	}
	// No node is between the load balancer and the endpoints. So the only effect of the policy is
	// the client address that the endpoints see.
	p.spec.KeepClientAddress = p.external() && svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if svc.TrafficDistribution != nil {
		p.tell("spec.trafficDistribution", "a load balancer does not know where a client is: all endpoints get traffic, wherever they are")
	}
	if mode := p.text(annotationTopology); mode != "" && mode != "Disabled" && mode != "disabled" {
		p.tell(field(annotationTopology), "a load balancer does not know where a client is: all endpoints get traffic, wherever they are")
	}
}

// nodes notes requests about node ports and external IPs that nodes do not follow. A node forwards
// such traffic to the cluster IP, with an address of its own as the source.
func (p *planner) nodes() {
	svc := p.Service.Spec
	local := svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	const hidden = "at node ports and external IPs a node forwards traffic to all endpoints, which see the node's address instead of the client's"
	switch {
	case local && Foreign(p.Service):
		p.warn(ReasonUnsupported, "spec.externalTrafficPolicy", hidden+": set it to Cluster")
	case local && !p.external():
		p.warn(ReasonUnsupported, "spec.externalTrafficPolicy", hidden+": set it to Cluster, or use type LoadBalancer for a floating IP")
	case local && (slices.ContainsFunc(svc.Ports, func(port corev1.ServicePort) bool { return port.NodePort != 0 }) || len(svc.ExternalIPs) > 0):
		p.tell("spec.externalTrafficPolicy", hidden+": let clients use the load balancer's address")
	}
	p.externalIPs()
}

// externalIPs notes addresses that not all clients reach. What a pod sends does not pass the packet
// filter of its node, except to an address of a node.
func (p *planner) externalIPs() {
	var forwarded []string
	for _, text := range p.Service.Spec.ExternalIPs {
		ip, err := ParseAddr(text)
		switch {
		case err != nil:
		case !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return sameFamily(v.IP, ip) }):
			p.warn(ReasonUnsupported, "spec.externalIPs", "the Service has no load balancer of the IP family of %s, so nodes do not accept traffic to it: add the family to spec.ipFamilies, or remove the address", ip)
		default:
			forwarded = append(forwarded, ip.String())
		}
	}
	if len(forwarded) > 0 {
		slices.Sort(forwarded)
		p.tell("spec.externalIPs", "pods reach %s only if the network delivers it to a node, because their traffic goes to the cloud and not through the packet filter of their node: let pods use the cluster IP", some(slices.Compact(forwarded)))
	}
}
