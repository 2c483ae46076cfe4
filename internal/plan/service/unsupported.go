// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

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
