// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// editConfig applies a changed configuration. An edit of the ConfigMap itself would conflict with
// the next apply.
const editConfig = "kubectl apply --server-side -k config/mycluster # after you have edited config/mycluster/kuryr.yaml"

// Fields of the configuration that findings name.
const (
	fieldPods     = "pods.subnetIDs"
	fieldServices = "services.subnetIDs"
	fieldPublic   = "services.externalNetworkID"
)

// serves reports whether Services get load balancers.
func (f *Facts) serves() bool { return len(f.Config.ServiceSubnetIDs) > 0 }

// public reports whether Services get floating IPs of the configured network.
func (f *Facts) public() bool { return f.serves() && f.Config.ExternalNetworkID != "" }

// subnets returns those of these subnets that the cloud shows.
func (f *Facts) subnets(ids []string) []sdn.SurveyedSubnet {
	var out []sdn.SurveyedSubnet
	for _, id := range ids {
		if s, ok := f.Networks.Subnets.Value[id]; ok {
			out = append(out, s)
		}
	}
	return out
}

// named is an ID with the name, if there is one.
func named(id, name string) string {
	if name == "" {
		return id
	}
	return id + " (" + name + ")"
}

func publicNetworkMissing(f *Facts, k Kind) []Finding {
	if !f.public() {
		return nil
	}
	return f.notExternal(k, f.Config.ExternalNetworkID, fieldPublic, "Services of type LoadBalancer get no floating IP.")
}

// notExternal reports a network of a field that no router can have a gateway in.
func (f *Facts) notExternal(k Kind, id, field, effect string) []Finding {
	const command = "openstack network list --external"
	n, ok := f.Networks.Networks.Value[id]
	switch err := f.Networks.Networks.Err; {
	case err != nil:
		return k.unknown("network "+id+" of "+field, "it exists", err)
	case !ok:
		return []Finding{k.missing("network "+id, field, effect, command)}
	case !n.External:
		return []Finding{k.found("network "+id+" of "+field, "Network "+named(id, n.Name)+" is not external. "+effect, command, editConfig)}
	}
	return nil
}

func publicSubnetMissing(f *Facts, k Kind) []Finding {
	id := f.Config.ExternalSubnetID
	if !f.public() || id == "" {
		return nil
	}
	found := missingSubnets(f, k, "services.externalSubnetID", []string{id}, "Services of type LoadBalancer get no floating IP.")
	s, ok := f.Networks.Subnets.Value[id]
	if ok && !sdn.SameID(s.NetworkID, f.Config.ExternalNetworkID) {
		found = append(found, k.found("subnet "+id+" of services.externalSubnetID", fmt.Sprintf(
			"Subnet %s is of network %s and not of %s %s. Services of type LoadBalancer get no floating IP.",
			named(id, s.Name), s.NetworkID, fieldPublic, f.Config.ExternalNetworkID),
			"openstack subnet list --network "+f.Config.ExternalNetworkID, editConfig))
	}
	return found
}

func podSubnetMissing(f *Facts, k Kind) []Finding {
	return missingSubnets(f, k.ifAll(f.all(f.unseen)), fieldPods, f.Config.PodSubnetIDs(), "Pods get no address of it.")
}

func serviceSubnetMissing(f *Facts, k Kind) []Finding {
	return missingSubnets(f, k.ifAll(f.all(f.unseen)), fieldServices, f.Config.ServiceSubnetIDs, "Services with a cluster IP in it get no load balancer.")
}

// missingSubnets reports each subnet of a field that the cloud does not show.
func missingSubnets(f *Facts, k Kind, field string, ids []string, effect string) []Finding {
	if err := f.Networks.Subnets.Err; err != nil && len(ids) > 0 {
		return k.unknown(field, "its subnets exist", err)
	}
	var out []Finding
	for _, id := range ids {
		if f.unseen(id) {
			out = append(out, k.missing("subnet "+id, field, effect, "openstack subnet list"))
		}
	}
	return out
}

func (f *Facts) unseen(subnetID string) bool {
	_, ok := f.Networks.Subnets.Value[subnetID]
	return !ok
}

func podNetworkMismatch(f *Facts, k Kind) []Finding {
	return f.notOfOne(k, fieldPods, "", f.Config.PodSubnetIDs())
}

// notOfOne reports subnets of pods that are not of one network, the configured one if there is any: a
// port is of one.
func (f *Facts) notOfOne(k Kind, field, network string, ids []string) []Finding {
	if _, ok := f.Networks.Networks.Value[network]; network != "" && !ok && f.Networks.Networks.Err == nil {
		return []Finding{k.missing("network "+network, "the networkID beside "+field, "Pods get no ports.", "openstack network list")}
	}
	var out []Finding
	for _, s := range f.subnets(ids) {
		network = cmp.Or(network, s.NetworkID)
		if !sdn.SameID(s.NetworkID, network) {
			out = append(out, k.ifAll(f.all(func(id string) bool { return id == s.ID })).found("subnet "+s.ID+" of "+field, fmt.Sprintf(
				"Subnet %s is of network %s, and another subnet of %s, or the networkID beside it, of network %s. All addresses of a port are of one network, so pods get no ports.",
				named(s.ID, s.Name), s.NetworkID, field, network), "openstack subnet list --network "+network, editConfig))
		}
	}
	return out
}

// networkDown reports networks that a person has switched off.
func networkDown(f *Facts, k Kind) []Finding {
	k = k.ifAll(f.all(func(id string) bool { return f.Networks.Networks.Value[f.Networks.Subnets.Value[id].NetworkID].Down }))
	var out []Finding
	seen := map[string]bool{}
	ids := append(f.Config.PodSubnetIDs(), f.Config.ServiceSubnetIDs...)
	for _, s := range f.subnets(ids) {
		n, ok := f.Networks.Networks.Value[s.NetworkID]
		if !ok || !n.Down || seen[n.ID] {
			continue
		}
		seen[n.ID] = true
		out = append(out, k.found("network "+n.ID, "Network "+named(n.ID, n.Name)+" is switched off (admin_state_up is false): no packet passes it.",
			"openstack network set --enable "+n.ID))
	}
	return out
}

// minMTU6 is the least that IPv6 needs of a link.
const minMTU6 = 1280

func mtuMismatch(f *Facts, k Kind) []Finding {
	var out []Finding
	pods, known := f.network(f.Config.PodSubnetIDs())
	if !known || pods.MTU == 0 {
		return nil
	}
	if own := f.Config.NodeMTU; own > 0 && own < int(pods.MTU) {
		out = append(out, k.found("node.mtu", fmt.Sprintf("node.mtu is %d, and the MTU of the pods' network %s is %d. Pods drop larger packets that other machines of the network send.",
			own, named(pods.ID, pods.Name), pods.MTU), fmt.Sprintf("openstack network set --mtu %d %s", own, pods.ID)))
	}
	if services, ok := f.network(f.Config.ServiceSubnetIDs); ok && services.MTU > 0 && services.MTU < pods.MTU {
		out = append(out, k.found("network "+services.ID, fmt.Sprintf(
			"The MTU of the Services' network %s is %d, less than the %d of the pods' network. Large packets from pods to cluster IPs are fragmented or dropped by the router.",
			named(services.ID, services.Name), services.MTU, pods.MTU), fmt.Sprintf("openstack network set --mtu %d %s", pods.MTU, services.ID)))
	}
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		if s.Prefix.Addr().Is6() && pods.MTU < minMTU6 {
			out = append(out, k.found("network "+pods.ID, fmt.Sprintf("The MTU of the pods' network %s is %d. IPv6 needs %d at least, so pods have no IPv6.",
				named(pods.ID, pods.Name), pods.MTU, minMTU6), fmt.Sprintf("openstack network set --mtu %d %s", minMTU6, pods.ID)))
			break
		}
	}
	return out
}

// seesRouterInterfaces reports whether the credential sees each port of a router in a subnet: as an
// administrator, or as the owner of the network.
func (f *Facts) seesRouterInterfaces(s sdn.SurveyedSubnet) bool {
	n, own := f.Networks.Networks.Value[s.NetworkID], f.Networks.ProjectID
	return n.Type != "" || own != "" && sdn.SameID(n.ProjectID, own)
}

// virtual reports whether a subnet surely is of a network of the cloud alone. Others may have
// machines and gateways that the cloud does not know.
func (f *Facts) virtual(s sdn.SurveyedSubnet) bool {
	n := f.Networks.Networks.Value[s.NetworkID]
	return n.Physical == "" && slices.Contains([]string{"geneve", "vxlan", "gre"}, n.Type)
}

// network returns the network of the first of these subnets that the cloud shows.
func (f *Facts) network(subnetIDs []string) (sdn.SurveyedNetwork, bool) {
	for _, s := range f.subnets(subnetIDs) {
		n, ok := f.Networks.Networks.Value[s.NetworkID]
		return n, ok
	}
	return sdn.SurveyedNetwork{}, false
}

// list is some of many words, and how many more there are.
func list(words []string) string {
	const most = 5
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}
