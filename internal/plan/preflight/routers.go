// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// routersOf returns the routers with an interface in a subnet, sorted.
func (f *Facts) routersOf(subnetID string) []string {
	var ids []string
	for _, l := range f.Networks.RouterInterfaces.Value {
		if l.SubnetID == subnetID {
			ids = append(ids, l.RouterID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// A cloud without routers, as one with MidoNet's own, shows no extension for them.
const extensionRouter = "router"

// routed reports whether routers are Neutron's to show.
func (f *Facts) routed() bool {
	e := f.Networks.Extensions
	return e.Err != nil || slices.Contains(e.Value, extensionRouter)
}

// sameFamily reports whether two prefixes are of one IP family.
func sameFamily(a, b netip.Prefix) bool { return a.Addr().Is4() == b.Addr().Is4() }

// podSubnetNotRouted looks at IP families that Services have. Pods may do without a router.
func podSubnetNotRouted(f *Facts, k Kind) []Finding {
	var ids []string
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		if slices.ContainsFunc(f.subnets(f.Config.ServiceSubnetIDs), func(vips sdn.SurveyedSubnet) bool { return sameFamily(vips.Prefix, s.Prefix) }) {
			ids = append(ids, s.ID)
		}
	}
	if err := f.Networks.Subnets.Err; err != nil && f.serves() && f.routed() {
		return k.unknown(fieldPods, "routers have ports in its subnets", err)
	}
	return f.notRouted(k, fieldPods, ids, "Its pods do not reach cluster IPs, and load balancers do not reach its pods.")
}

func serviceSubnetNotRouted(f *Facts, k Kind) []Finding {
	return f.notRouted(k, fieldServices, f.Config.ServiceSubnetIDs, "Pods and nodes do not reach the cluster IPs in it.")
}

// notRouted reports subnets without a router. A subnet of pods that has the VIPs too needs none.
func (f *Facts) notRouted(k Kind, field string, ids []string, effect string) []Finding {
	if !f.routed() || len(ids) == 0 {
		return nil
	}
	if err := f.Networks.RouterInterfaces.Err; err != nil {
		return k.unknown(field, "routers have ports in its subnets", err)
	}
	k = k.ifAll(f.all(func(id string) bool {
		s := f.Networks.Subnets.Value[id]
		return slices.Contains(ids, id) && f.seesRouterInterfaces(s) && f.virtual(s) && len(f.routersOf(id)) == 0 && !f.shared(id)
	}))
	var out []Finding
	for _, s := range f.subnets(ids) {
		if len(f.routersOf(s.ID)) == 0 && !f.shared(s.ID) {
			out = append(out, f.unrouted(k, field, s, effect)...)
		}
	}
	return out
}

// unrouted is the finding about a subnet in which Neutron shows no port of a router. It is an error
// only where nothing else than a router of Neutron can be the gateway.
func (f *Facts) unrouted(k Kind, field string, s sdn.SurveyedSubnet, effect string) []Finding {
	object, name := "subnet "+s.ID+" of "+field, named(s.ID, s.Name)
	if err := f.Networks.Networks.Err; err != nil {
		return k.unknown(object, "a router has a port in subnet "+name, err)
	}
	if !f.seesRouterInterfaces(s) {
		return k.unknown(object, "a router has a port in subnet "+name, errors.New("Neutron shows none to this credential, and shows all ports of "+
			"network "+s.NetworkID+" only to administrators and to the network's owner"))
	}
	if !f.virtual(s) {
		return []Finding{k.warning(object, fmt.Sprintf("No router of Neutron has a port in subnet %s. Kuryr cannot see whether a router outside of Neutron has one. Otherwise: %s", name, effect),
			"openstack network show "+s.NetworkID, "openstack subnet show "+s.ID)}
	}
	remedy := []string{"openstack router list", "openstack router add subnet ROUTER " + s.ID}
	if !s.Gateway.IsValid() { // whose address the router's port would have
		remedy = []string{"openstack router list", "openstack port create --network " + s.NetworkID + " --fixed-ip subnet=" + s.ID + " router", "openstack router add port ROUTER router"}
	}
	return []Finding{k.found(object, fmt.Sprintf("No router has a port in subnet %s. %s", name, effect), remedy...)}
}

// shared reports whether a subnet is one of pods and of Services.
func (f *Facts) shared(id string) bool {
	return slices.Contains(f.Config.PodSubnetIDs(), id) && slices.Contains(f.Config.ServiceSubnetIDs, id)
}

// routersDiffer reports subnets of pods and of Services, of one IP family, without a router of both.
// No command is safe: to remove a router's port from a subnet cuts the subnet off.
func routersDiffer(f *Facts, k Kind) []Finding {
	if err := f.Networks.RouterInterfaces.Err; err != nil && f.serves() {
		return k.unknown(fieldServices, "its subnets are on the router of the pods' subnets", err)
	}
	var out []Finding
	for _, vips := range f.subnets(f.Config.ServiceSubnetIDs) {
		for _, pods := range f.subnets(f.Config.PodSubnetIDs()) {
			a, b := f.routersOf(vips.ID), f.routersOf(pods.ID)
			common := slices.ContainsFunc(a, func(id string) bool { return slices.Contains(b, id) })
			if pods.ID == vips.ID || !sameFamily(pods.Prefix, vips.Prefix) || len(a) == 0 || len(b) == 0 || common {
				continue
			}
			out = append(out, k.found("subnet "+vips.ID+" of "+fieldServices, fmt.Sprintf(
				"Subnet %s of Services is on router %s, and subnet %s of pods on router %s. Pods reach cluster IPs only if these routers have routes to each other, which Kuryr cannot see.",
				named(vips.ID, vips.Name), list(a), named(pods.ID, pods.Name), list(b)),
				"openstack router show "+a[0], "openstack router show "+b[0]))
		}
	}
	return out
}

// used returns the routers of some subnets that the cloud shows, sorted by ID, and the IDs of those
// that it does not show: a project may use the router of another one.
func (f *Facts) used(subnetIDs []string) (shown []sdn.Router, hidden []string) {
	var ids []string
	for _, s := range f.subnets(subnetIDs) {
		ids = append(ids, f.routersOf(s.ID)...)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if r, ok := f.Networks.Routers.Value[id]; ok {
			shown = append(shown, r)
		} else {
			hidden = append(hidden, id)
		}
	}
	return shown, hidden
}

var errHidden = errors.New("Neutron does not show the router to this credential")

// cutOff reports whether the router at the gateway of a subnet is switched off; if none is there, all
// routers of the subnet.
func (f *Facts) cutOff(subnetID string) bool {
	on, off := 0, 0
	for _, l := range f.Networks.RouterInterfaces.Value {
		switch down := f.Networks.Routers.Value[l.RouterID].Down; {
		case l.SubnetID != subnetID:
		case l.Address == f.Networks.Subnets.Value[subnetID].Gateway:
			return down
		case down:
			off++
		default:
			on++
		}
	}
	return on == 0 && off > 0
}

func routerDown(f *Facts, k Kind) []Finding {
	if f.Networks.Routers.Err != nil {
		return nil // see needRouters
	}
	var out []Finding
	off := func(k Kind, r sdn.Router, object, who string) {
		if r.Down {
			out = append(out, k.found(object, "Router "+named(r.ID, r.Name)+" is switched off (admin_state_up is false): pods "+who+" reach neither cluster IPs nor other networks.",
				"openstack router set --enable "+r.ID))
		}
	}
	shown, hidden := f.used(append(f.Config.PodSubnetIDs(), f.Config.ServiceSubnetIDs...))
	for _, r := range shown {
		off(k.ifAll(f.all(f.cutOff)), r, "router "+r.ID, "that send by it")
	}
	for _, id := range hidden {
		out = append(out, k.unknown("router "+id, "router "+id+" is switched on", errHidden)...)
	}
	for _, at := range f.routersOfNamespaces() {
		if !slices.ContainsFunc(shown, func(r sdn.Router) bool { return r.ID == at.ID }) {
			off(k.ifAll(false), f.Networks.Routers.Value[at.ID], "router "+at.ID+" of "+at.Field, "of the namespaces on it")
		}
	}
	return out
}

// routerWithoutGateway reports Services whose floating IPs no router can serve.
func routerWithoutGateway(f *Facts, k Kind) []Finding {
	if !f.public() || !f.routed() {
		return nil
	}
	if err := f.Networks.Routers.Err; err != nil {
		return k.unknown(fieldPublic, "the router of the Services' subnets has a gateway to it", err)
	}
	inside := func(id string) bool {
		shown, _ := f.used([]string{id})
		return slices.Contains(f.Config.ServiceSubnetIDs, id) &&
			!slices.ContainsFunc(shown, func(r sdn.Router) bool { return sdn.SameID(r.ExternalNetwork, f.Config.ExternalNetworkID) })
	}
	k = k.ifAll(f.all(inside))
	var out []Finding
	for _, s := range f.subnets(f.Config.ServiceSubnetIDs) {
		shown, hidden := f.used([]string{s.ID})
		if s.Prefix.Addr().Is6() || !inside(s.ID) { // no floating IP is of IPv6
			continue
		}
		if len(hidden) > 0 {
			out = append(out, k.unknown("router "+hidden[0], "router "+hidden[0]+" has a gateway to network "+f.Config.ExternalNetworkID, errHidden)...)
		} else if len(shown) > 0 {
			out = append(out, f.withoutGateway(k, s, shown[0]))
		}
	}
	return out
}

// withoutGateway is the finding about a router. One that has another gateway may serve others by it.
func (f *Facts) withoutGateway(k Kind, s sdn.SurveyedSubnet, r sdn.Router) Finding {
	public := f.Config.ExternalNetworkID
	has, remedy := "no gateway", fmt.Sprintf("openstack router set --external-gateway %s --disable-snat %s # see docs/services-howto.md", public, r.ID)
	if r.ExternalNetwork != "" {
		has, remedy = "a gateway to network "+r.ExternalNetwork+", and none", "openstack router show "+r.ID
	}
	return k.found("router "+r.ID, fmt.Sprintf("Router %s of the Services' subnet %s has %s to network %s of %s. Floating IPs of Services cannot be associated.",
		named(r.ID, r.Name), named(s.ID, s.Name), has, public, fieldPublic), remedy)
}

// gatewayNotRouter reports subnets of pods whose gateway is not a router's address, though the
// subnet has a router. Routers have link-local addresses that Neutron does not show.
func gatewayNotRouter(f *Facts, k Kind) []Finding {
	var out []Finding
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		var ifaces []string
		right := false
		for _, l := range f.Networks.RouterInterfaces.Value {
			if l.SubnetID == s.ID {
				ifaces = append(ifaces, l.Address.String())
				right = right || l.Address == s.Gateway
			}
		}
		if right || len(ifaces) == 0 || !s.Gateway.IsValid() || s.Gateway.IsLinkLocalUnicast() {
			continue
		}
		out = append(out, k.found("subnet "+s.ID+" of "+fieldPods, fmt.Sprintf(
			"The gateway of subnet %s is %s, and its router's address is %s. Pods send what leaves the subnet to the gateway; Kuryr cannot see whether a machine there passes it on. "+
				"If nothing has that address: remove the router from the subnet and add it again, which cuts the subnet off meanwhile. The router then has it.",
			named(s.ID, s.Name), s.Gateway, list(ifaces)), fmt.Sprintf("openstack port list --fixed-ip subnet=%s,ip-address=%s", s.ID, s.Gateway)))
	}
	return out
}

// serviceRouteMissing reports subnets of pods that have no route to cluster IPs, and host routes
// that no pod can use.
func serviceRouteMissing(f *Facts, k Kind) []Finding {
	var out []Finding
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		object := "subnet " + s.ID + " of " + fieldPods
		for _, r := range s.Routes {
			if via, err := netip.ParseAddr(r.Gateway); err == nil && !s.Prefix.Contains(via) && !via.IsLinkLocalUnicast() && !via.IsUnspecified() {
				out = append(out, k.warning(object, fmt.Sprintf("The host route of subnet %s to %s leads to %s, which is not in the subnet. Pods use it as an address on their network: Kuryr cannot see whether another subnet there has it.",
					named(s.ID, s.Name), r.Destination, via), fmt.Sprintf("openstack subnet unset --host-route destination=%s,gateway=%s %s", r.Destination, via, s.ID)))
			}
		}
		away := func(id string) bool {
			vips := f.Networks.Subnets.Value[id]
			return slices.Contains(f.Config.ServiceSubnetIDs, id) && id != s.ID && sameFamily(vips.Prefix, s.Prefix) && !s.Gateway.IsValid() && !leads(s, vips.Prefix)
		}
		all := f.all(func(id string) bool { return id == s.ID }) && f.all(away)
		for _, vips := range f.subnets(f.Config.ServiceSubnetIDs) {
			if !away(vips.ID) {
				continue
			}
			out = append(out, k.ifAll(all).found(object, fmt.Sprintf("Subnet %s has neither a gateway nor a host route to %s, the subnet of the cluster IPs. Its pods do not reach Services.",
				named(s.ID, s.Name), vips.Prefix), fmt.Sprintf("openstack subnet set --host-route destination=%s,gateway=ROUTER_ADDRESS %s", vips.Prefix, s.ID)))
		}
	}
	return out
}

// leads reports whether a host route of a subnet covers a prefix.
func leads(s sdn.SurveyedSubnet, to netip.Prefix) bool {
	for _, r := range s.Routes {
		p, err := netip.ParsePrefix(r.Destination)
		if err == nil && p.Bits() <= to.Bits() && p.Contains(to.Addr()) {
			return true
		}
	}
	return false
}
