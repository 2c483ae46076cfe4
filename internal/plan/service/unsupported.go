// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// annotationTopology asks for what spec.trafficDistribution asks for, too.
const annotationTopology = "service.kubernetes.io/topology-mode"

// unsupported notes the fields that Kuryr does not follow, or not yet.
func (p *planner) unsupported() {
	svc := p.Service.Spec
	p.traffic()
	p.nodes()
	if svc.LoadBalancerIP != "" && !p.external() && !Foreign(p.Service) {
		p.tell("spec.loadBalancerIP", "only Services of type LoadBalancer have a use for it: remove it, or set spec.type")
	}
}

// traffic notes what a Service says of the way that traffic takes.
func (p *planner) traffic() {
	svc := p.Service.Spec
	if policy := svc.InternalTrafficPolicy; policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal {
		p.warn(ReasonUnsupported, "spec.internalTrafficPolicy", "a load balancer does not know what node a client is on: all endpoints get traffic, as with Cluster")
	}
	// No node is between the load balancer and the endpoints, so that all that is
	// left of it is what the endpoints see.
	p.spec.KeepClientAddress = p.external() && svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if svc.TrafficDistribution != nil {
		p.tell("spec.trafficDistribution", "a load balancer does not know where a client is: all endpoints get traffic alike")
	}
	if mode := p.text(annotationTopology); mode != "" && mode != "Disabled" && mode != "disabled" {
		p.tell(field(annotationTopology), "a load balancer does not know where a client is: all endpoints get traffic alike")
	}
}

// nodes notes what of node ports and external IPs nodes do not do: they pass traffic
// on to the cluster IP, under an address of their own.
func (p *planner) nodes() {
	svc := p.Service.Spec
	local := svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	const hidden = "at node ports and external IPs a node passes traffic on to all endpoints, and they see the node's address in place of the client's"
	switch {
	case local && Foreign(p.Service):
		p.warn(ReasonUnsupported, "spec.externalTrafficPolicy", hidden+": set it to Cluster")
	case local && !p.external():
		p.warn(ReasonUnsupported, "spec.externalTrafficPolicy", hidden+": set it to Cluster, or have a floating IP with type LoadBalancer")
	case local && (nodePorts(svc.Ports) || len(svc.ExternalIPs) > 0):
		p.tell("spec.externalTrafficPolicy", hidden+": have clients use the load balancer's address")
	}
	for _, text := range svc.ExternalIPs {
		ip, err := ParseAddr(text)
		if err == nil && !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return sameFamily(v.IP, ip) }) {
			p.warn(ReasonUnsupported, "spec.externalIPs", "%s is of a family that the Service has no load balancer of, and traffic to it is not taken: add the family to spec.ipFamilies, or remove the address", ip)
		}
	}
}

func nodePorts(ports []corev1.ServicePort) bool {
	for _, port := range ports {
		if port.NodePort != 0 {
			return true
		}
	}
	return false
}
