// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// missingPorts is how many ports Kuryr still has to make until each pool has its min and each
// waiting pod has a port. With pools.warmUp a node without a pool counts as one with an empty pool.
// Pods to come are not counted. Only the pools that are of the subnets of pods count.
func (f *Facts) missingPorts() (int, error) {
	c := &f.Cluster
	if err := cmp.Or(c.Nodes.Err, c.Pools.Err); err != nil {
		return 0, err
	}
	least := map[string]int{} // ports that a node's pool still needs, if it has none
	for _, node := range c.Nodes.Value {
		least[node.Name] = node.Min
	}
	n := 0
	for _, p := range c.Pools.Value {
		if p.Elsewhere {
			continue
		}
		low, planned := least[p.Node]
		if p.Namespace != "" || !planned {
			low = p.Min
		} else {
			least[p.Node] = 0 // a second pool of the node is an earlier one, without pods to come
		}
		n += max(0, low+p.Waiting-p.Free)
	}
	if !f.Config.WarmUp {
		return n, nil // a pool is made with the first pod
	}
	for _, low := range least {
		n += low
	}
	return n, nil
}

// missingElsewhere is the same of a project's pools that are not of the subnets of pods.
func (f *Facts) missingElsewhere(project string) int {
	n := 0
	for _, p := range f.Cluster.Pools.Value {
		if p.Elsewhere && p.ProjectID == project {
			n += max(0, p.Min+p.Waiting-p.Free)
		}
	}
	return n
}

// missingVIPs is how many load balancers Kuryr still has to make: each has a port.
func (f *Facts) missingVIPs() (int, error) {
	want, err := f.want()
	if err != nil || !f.serves() {
		return 0, err
	}
	return max(0, want.balancers-f.Cluster.Balancers.Value), f.Cluster.Balancers.Err
}

// load is what the Services of the cluster need in all.
type load struct{ balancers, listeners, members int }

func (f *Facts) want() (load, error) {
	var all load
	for _, s := range f.Cluster.Services.Value {
		all.balancers += len(s.ClusterIPs)
		all.listeners += len(s.ClusterIPs) * s.Ports
		all.members += s.Members
	}
	return all, f.Cluster.Services.Err
}

// left returns how much of a quota is left; none: it has no limit, or the cloud does not tell it.
func (f *Facts) left(project, kind string) (left int, none bool, err error) {
	q, ok := f.Networks.Quotas[project]
	if !ok || q.Err != nil {
		return 0, !ok, q.Err
	}
	usage, ok := q.Value[kind]
	if !ok {
		return 0, true, nil
	}
	left, bounded := usage.Left()
	return left, !bounded, nil
}

// noProject stands in a command for the credential's own project.
const noProject = "PROJECT"

func portQuotaShort(f *Facts, k Kind) []Finding {
	pods, podErr := f.missingPorts()
	vips, vipErr := f.missingVIPs()
	own, other := f.Config.ProjectID, f.Config.ServiceProjectID
	pods += f.missingElsewhere(own)
	if own == other || !f.serves() {
		return f.shortOfPorts(k, own, pods, vips, cmp.Or(podErr, vipErr))
	}
	return append(f.shortOfPorts(k, own, pods, 0, podErr), f.shortOfPorts(k, other, 0, vips, vipErr)...)
}

// shortOfPorts reports that a project's quota has no room for these ports.
func (f *Facts) shortOfPorts(k Kind, project string, pods, vips int, err error) []Finding {
	object := "quota of ports of project " + cmp.Or(project, noProject)
	left, none, quotaErr := f.left(project, "port")
	n := pods + vips
	if err = cmp.Or(err, quotaErr); err != nil {
		return k.unknown(object, "it has room", err)
	}
	if none || n <= left {
		return nil
	}
	limit := f.Networks.Quotas[project].Value["port"].Limit
	return []Finding{k.found(object, fmt.Sprintf("The quota has room for %d more ports of %d, and Kuryr needs %d more: %d for pools and %d for load balancers.", left, limit, n, pods, vips),
		fmt.Sprintf("openstack quota set --ports %d %s", limit+n-left, cmp.Or(project, noProject)))}
}

func balancingQuotaShort(f *Facts, k Kind) []Finding {
	if !f.serves() || errors.Is(f.Balancing.Providers.Err, sdn.ErrNoService) {
		return nil
	}
	project := f.Config.ServiceProjectID
	want, err := f.want()
	if err = cmp.Or(err, f.Balancing.Quotas.Err); err != nil {
		return k.unknown("quotas of load balancing of project "+cmp.Or(project, noProject), "they have room", err)
	}
	if want.balancers > 0 {
		want.balancers++ // see docs/services.md, "What serves is replaced last"
	}
	var out []Finding
	for _, q := range []struct {
		kind, option, plural, with string
		n                          int
	}{
		{"load_balancer", "--loadbalancer", "load balancers", ", with one as a trial before another is replaced", want.balancers},
		{"listener", "--listener", "listeners", "", want.listeners},
		{"pool", "--pool", "pools", "", want.listeners},
		{"member", "--member", "members", "", want.members},
	} {
		limit, ok := f.Balancing.Quotas.Value[q.kind]
		if !ok || limit < 0 || q.n <= limit {
			continue
		}
		out = append(out, k.found("quota of "+q.plural+" of project "+cmp.Or(project, noProject), fmt.Sprintf(
			"The quota is %d %s, and the Services of the cluster need %d%s. Some Services get no, or an incomplete, load balancer.", limit, q.plural, q.n, q.with),
			fmt.Sprintf("openstack loadbalancer quota set %s %d %s", q.option, q.n, cmp.Or(project, noProject))))
	}
	return out
}

// subnetFull reports entries of pods.subnetIDs whose subnets have too few addresses together. A
// cloud that shows no addresses to this credential is no finding: pools report a full subnet.
func subnetFull(f *Facts, k Kind) []Finding {
	need, err := f.missingPorts()
	if err = cmp.Or(err, f.Networks.Addresses.Err); err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return k.unknown(fieldPods, "its subnets have room", err)
	}
	var out []Finding
	for _, entry := range f.Config.PodSubnets {
		left, known := 0, true
		for _, id := range entry {
			usage, ok := f.Networks.Addresses.Value[id]
			known = known && ok
			n, _ := usage.Left()
			left += min(n, 1<<32) // one of IPv6 may have as many as an int holds
		}
		if !known || need <= left {
			continue
		}
		out = append(out, k.found("subnet "+entry[0]+" of "+fieldPods, fmt.Sprintf(
			"%d addresses are left in %s, and Kuryr needs %d more for pools and waiting pods.", left, list(entry), need),
			"openstack ip availability list", "openstack subnet create --network "+cmp.Or(f.Networks.Subnets.Value[entry[0]].NetworkID, "NETWORK")+" --subnet-range CIDR pods-2",
			"openstack router add subnet "+append(f.routersOf(entry[0]), "ROUTER")[0]+" pods-2", editConfig))
	}
	return out
}

func loadBalancingMissing(f *Facts, k Kind) []Finding {
	if !f.serves() || f.Balancing.Providers.Err == nil {
		return nil
	}
	err := f.Balancing.Providers.Err
	if !errors.Is(err, sdn.ErrNoService) {
		out := k.unknown("Octavia", "it can serve load balancers", err)
		if errors.Is(err, sdn.ErrForbidden) {
			out[0].Remedy = []string{"openstack role add --user USER --project PROJECT load-balancer_member # make an application credential again"}
		}
		return out
	}
	return []Finding{k.found("Octavia", "services.subnetIDs is set, but the cloud has no load balancers: "+err.Error()+". No Service gets one.",
		"openstack catalog show load-balancer", editConfig)}
}

func octaviaOld(f *Facts, k Kind) []Finding {
	old := f.Balancing.Old
	switch {
	case !f.serves() || errors.Is(old.Err, sdn.ErrNoService) || old.Err == nil && old.Value == "":
		return nil
	case old.Err != nil:
		return k.unknown("API of Octavia", "it is new enough", old.Err)
	}
	return []Finding{k.found("API of Octavia", fmt.Sprintf("Octavia's API is %s. Kuryr was shown with v2.26 (OpenStack Zed) and later ones: Services work with fewer features. "+
		"docs/services-howto.md has the version of each feature.", old.Value), "openstack versions show --service load-balancer")}
}

func providerMissing(f *Facts, k Kind) []Finding {
	p := f.Config.Provider
	known := f.Balancing.Providers
	if !f.serves() || p == "" || known.Err != nil || slices.ContainsFunc(known.Value, func(n string) bool { return sdn.SameProvider(n, p) }) {
		return nil
	}
	return []Finding{k.found("services.provider", fmt.Sprintf("Octavia has no provider %q, only %s. No Service gets a load balancer.", p, list(known.Value)),
		"openstack loadbalancer provider list", editConfig)}
}
