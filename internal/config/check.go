// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds that the API types have too (api/v1), or that others set.
const (
	maxAddresses = 16
	maxGroups    = 64
	maxLevel     = 10000
	maxBatch     = 500
	maxKept      = 87600 * time.Hour // ten years
	maxCreates   = 100
	maxEntries   = 100 // of a list of selectors, each of which is asked for each pod
	// kubelet waits 4m for a sandbox (twice its runtimeRequestTimeout of 2m),
	// and what we say is wanted there before that.
	maxAddTimeout = 3*time.Minute + 30*time.Second
)

// exampleID stands in config/base/kuryr.yaml and config/example/kuryr.yaml.
const exampleID = "00000000-0000-0000-0000-000000000000"

var (
	uuidForm      = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	projectForm   = regexp.MustCompile(`^[0-9A-Za-z_-]{1,64}$`)
	clusterForm   = regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}$`) // as internal/openstack takes it
	vifTypeForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	interfaceForm = regexp.MustCompile(`^[^/: \t\n]{1,15}$`)
)

// check notes in d what is well written in c and yet makes no sense. It writes the UUIDs in c in
// small letters, as the cloud does: the cloud accepts capitals, and a comparison would fail.
func check(c *Config, d *decoder) {
	if c.APIVersion != APIVersion {
		d.fault("apiVersion", "want %s, got %q", APIVersion, c.APIVersion)
	}
	if c.Kind != Kind {
		d.fault("kind", "want %s, got %q", Kind, c.Kind)
	}
	if c.ClusterID != "" && !clusterForm.MatchString(c.ClusterID) {
		d.fault("clusterID", "%q is no mark for the cloud: write 1 to 64 letters, digits, '.', '_' or '-', or nothing for the UID of kube-system",
			c.ClusterID)
	}
	checkNeutron(c.Neutron, d)
	checkPods(&c.Pods, d)
	checkNodes(c.Nodes, d)
	checkPools(c.Pools, d)
	checkNetworks(c, d)
	checkProjects(c.Projects, c.Neutron.Cloud, d)
	checkServices(&c.Services, d)
	if c.Orphans.Interval.Duration != 0 { // 0s: there is none
		d.between("orphans.interval", c.Orphans.Interval, time.Second, 24*time.Hour)
	}
	d.between("orphans.grace", c.Orphans.Grace, 15*time.Second, 24*time.Hour) // a late request of a controller that hung
	d.bounds("controllers.active", c.Controllers.Active, 0, 128)
	checkNode(c.Node, d)
}

func checkNeutron(n Neutron, d *decoder) {
	d.between("neutron.requestTimeout", n.RequestTimeout, time.Second, 10*time.Minute)
	if !(n.RequestsPerSec > 0 && n.RequestsPerSec <= 10000) || math.IsNaN(n.RequestsPerSec) {
		d.fault("neutron.requestsPerSecond", "want more than 0 and at most 10000, got %v", n.RequestsPerSec)
	}
	d.bounds("neutron.maxConcurrentRequests", n.MaxConcurrent, 1, 1000)
	switch n.LoadBalancerAPI {
	case "octavia", "lbaasv2":
	default:
		d.fault("neutron.loadBalancerAPI", "want octavia, or lbaasv2 for a Neutron that serves load balancers itself, got %q", n.LoadBalancerAPI)
	}
}

func checkPods(p *Pods, d *decoder) {
	d.project("pods.projectID", p.ProjectID)
	if len(p.SubnetIDs) == 0 && !d.draft {
		d.fault("pods.subnetIDs", "missing: write the ID of the subnet that pods get their address of, or of one IPv4 and one IPv6 subnet of the same network")
	}
	checkSubnets(p, d)
	d.ids("pods.securityGroupIDs", p.SecurityGroupIDs, "security group", maxGroups)
	d.vifType("pods.vifType", p.VIFType)
	d.most("pods.securityGroups", len(p.SecurityGroups))
	for i, rule := range p.SecurityGroups {
		checkGroupRule(rule, fmt.Sprintf("pods.securityGroups[%d]", i), d)
	}
}

// checkSubnets checks the entries as a list, and then what is in lists of their own.
func checkSubnets(p *Pods, d *decoder) {
	d.ids("pods.subnetIDs", p.SubnetIDs, "subnet", maxAddresses)
	seen := map[string]string{}
	for i, id := range p.SubnetIDs {
		seen[id] = fmt.Sprintf("pods.subnetIDs[%d]", i)
	}
	for i, id := range p.SubnetIDs {
		at := fmt.Sprintf("pods.subnetIDs[%d]", i)
		if n := len(p.MoreSubnetIDs[id]) + 1; n > maxAddresses {
			d.fault(at, "want at most %d subnets for one address, got %d", maxAddresses, n)
		}
		for j := range p.MoreSubnetIDs[id] {
			here, more := fmt.Sprintf("%s[%d]", at, j+1), &p.MoreSubnetIDs[id][j]
			d.uuid(here, more, "subnet")
			if other, twice := seen[*more]; twice {
				d.fault(here, "the same subnet as in %s: remove one", other)
			}
			seen[*more] = at
		}
	}
}

func checkGroupRule(rule GroupRule, at string, d *decoder) {
	if rule.SecurityGroupIDs == nil {
		d.fault(at+".securityGroupIDs", "missing: write the IDs of the groups, or [] for none and so no traffic")
	}
	d.ids(at+".securityGroupIDs", rule.SecurityGroupIDs, "security group", maxGroups)
	d.selectors(at, map[string]*metav1.LabelSelector{"namespaceSelector": rule.NamespaceSelector, "podSelector": rule.PodSelector})
}

func checkNodes(nodes []NodePorts, d *decoder) {
	d.most("nodes", len(nodes))
	for i, n := range nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		d.vifType(at+".vifType", n.VIFType)
		d.ids(at+".parentSubnetIDs", n.ParentSubnetIDs, "subnet", maxAddresses)
		d.project(at+".parentProjectID", n.ParentProjectID)
		d.ids(at+".subnetIDs", n.SubnetIDs, "subnet", maxAddresses)
		for field, set := range map[string]bool{"parentSubnetIDs": len(n.ParentSubnetIDs) > 0, "parentProjectID": n.ParentProjectID != ""} {
			if set && !Nested(n.VIFType) {
				d.fault(at+"."+field, "it has an effect only with vifType %s or %s, on nodes that are virtual machines: remove it, or set vifType",
					VIFTypeVLAN, VIFTypeMACVLAN)
			}
		}
		d.selectors(at, map[string]*metav1.LabelSelector{"nodeSelector": n.NodeSelector})
	}
}

func checkPools(p Pools, d *decoder) {
	d.levels("pools", &p.Min, &p.Max, &p.Batch, &p.TTL, &p.Cooldown)
	if p.Max > 0 && p.Min > p.Max {
		d.crossed("pools", p.Min, p.Max)
	}
	d.bounds("pools.maxCreates", p.MaxCreates, 1, maxCreates)
	d.bounds("pools.maxCreatesPerSubnet", p.MaxCreatesPerSubnet, 1, maxCreates)
	d.most("pools.overrides", len(p.Overrides))
	for i, o := range p.Overrides {
		checkOverride(o, &p, fmt.Sprintf("pools.overrides[%d]", i), d)
	}
}

func checkOverride(o PoolOverride, p *Pools, at string, d *decoder) {
	d.levels(at, o.Min, o.Max, o.Batch, o.TTL, o.Cooldown)
	// Where another override has said one of the two first the pair is another,
	// which depends on labels: see Settings in internal/controller.
	low, high := p.Min, p.Max
	if o.Min != nil {
		low = *o.Min
	}
	if o.Max != nil {
		high = *o.Max
	}
	if (o.Min != nil || o.Max != nil) && high > 0 && low > high {
		d.crossed(at, low, high)
	}
	d.selectors(at, map[string]*metav1.LabelSelector{"nodeSelector": o.NodeSelector, "namespaceSelector": o.NamespaceSelector})
	if o.NamespaceSelector == nil && o.Min == nil && o.Max == nil && o.Batch == nil && o.TTL == nil && o.Cooldown == nil {
		d.fault(at, "it sets no level: write min, max, batch, ttl or cooldown, or remove it")
	}
}

// levels checks the levels that are set.
func (d *decoder) levels(at string, low, high, batch *int32, ttl, cooldown *metav1.Duration) {
	for _, l := range []struct {
		name      string
		got       *int32
		low, high int
	}{{"min", low, 0, maxLevel}, {"max", high, 0, maxLevel}, {"batch", batch, 1, maxBatch}} {
		if l.got != nil {
			d.bounds(at+"."+l.name, int(*l.got), l.low, l.high)
		}
	}
	if ttl != nil {
		d.between(at+".ttl", *ttl, 0, maxKept)
	}
	if cooldown != nil {
		d.between(at+".cooldown", *cooldown, 0, maxKept)
	}
}

// crossed complains of a min above max, where one of them was said.
func (d *decoder) crossed(at string, low, high int32) {
	if _, said := d.lines[at+".min"]; said {
		d.fault(at+".min", "min %d is above max %d: lower min, raise max, or write max: 0 for no limit", low, high)
		return
	}
	d.fault(at+".max", "max %d is below min, which is %d where it is not said: say min here, too, or raise max", high, low)
}

// selectors checks the selectors of the entry at: that they are valid, and that there is one. It
// runs last, because a fault of the entry hides the faults in it.
func (d *decoder) selectors(at string, named map[string]*metav1.LabelSelector) {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if named[name] == nil {
			missing = append(missing, name)
		}
		d.selector(at+"."+name, named[name])
	}
	if len(missing) == len(named) {
		d.fault(at, "missing: write %s, or {} to select all", strings.Join(missing, " or "))
	}
}

func (d *decoder) vifType(path, t string) {
	if t != "" && !vifTypeForm.MatchString(t) {
		d.fault(path, "%q is no type of port: write it in lower case, as in ovs or bridge, or leave it out to plug ports as Neutron says", t)
	}
}

func (d *decoder) most(path string, n int) {
	if n > maxEntries {
		d.fault(path, "want at most %d entries, got %d", maxEntries, n)
	}
}

func checkNode(n Node, d *decoder) {
	if err := checkOVSDB(n.OVSDB); err != nil {
		d.fault("node.ovsdb", "%v", err)
	}
	if !interfaceForm.MatchString(n.Bridge) || n.Bridge == "." || n.Bridge == ".." {
		d.fault("node.bridge", "%q is no name of a bridge: write 1 to 15 characters, as in br-int", n.Bridge)
	}
	if n.ParentInterface != "" && !interfaceForm.MatchString(n.ParentInterface) {
		d.fault("node.parentInterface", "%q is no name of an interface: write 1 to 15 characters, as in eth0, or leave it out for that of the default route", n.ParentInterface)
	}
	d.absolute("node.driverDir", n.DriverDir)
	d.absolute("node.stateDir", n.StateDir)
	if n.MTU != 0 {
		d.bounds("node.mtu", n.MTU, 68, 65535)
	}
	d.between("node.addTimeout", n.AddTimeout, time.Second, maxAddTimeout)
}

func checkOVSDB(s string) error {
	if s == "" { // a node without Open vSwitch
		return nil
	}
	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "unix":
		if filepath.IsAbs(rest) {
			return nil
		}
	case "tcp":
		if host, port, err := net.SplitHostPort(rest); err == nil && host != "" && port != "" {
			return nil
		}
	}
	return fmt.Errorf("%q is no place of an OVSDB server: write unix:/run/openvswitch/db.sock, tcp:127.0.0.1:6640, or \"\" for a node without Open vSwitch", s)
}

func (d *decoder) bounds(path string, got, low, high int) {
	if got < low || got > high {
		d.fault(path, "want %d to %d, got %d", low, high, got)
	}
}

func (d *decoder) between(path string, got metav1.Duration, low, high time.Duration) {
	switch {
	case got.Duration < low:
		d.fault(path, "want at least %v, got %v", low, got.Duration)
	case got.Duration > high:
		d.fault(path, "want at most %v, got %v", high, got.Duration)
	}
}

func (d *decoder) absolute(path, dir string) {
	if !filepath.IsAbs(dir) {
		d.fault(path, "%q is no absolute path: begin it with /", dir)
	}
}

func (d *decoder) ids(path string, ids []string, kind string, most int) {
	d.few(path, len(ids), most)
	for i := range ids {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.uuid(at, &ids[i], kind)
		if first := slices.Index(ids, ids[i]); first < i && ids[i] != "" {
			d.fault(at, "the same %s as %s[%d]: remove one", kind, path, first)
		}
	}
}

// few checks the length of a list.
func (d *decoder) few(path string, n, most int) {
	if n > most {
		d.fault(path, "want at most %d, got %d", most, n)
	}
}

// optional checks an ID that may be left out.
func (d *decoder) optional(path string, id *string, kind string) {
	if *id != "" {
		d.uuid(path, id, kind)
	}
}

func (d *decoder) uuid(path string, id *string, kind string) {
	switch {
	case *id == exampleID:
		d.fault(path, "replace the example's ID by that of your %s: the UUID that 'openstack %s show -c id NAME' prints", kind, kind)
	case !uuidForm.MatchString(*id):
		d.fault(path, "%q is no ID of a %s: write the UUID that 'openstack %s show -c id NAME' prints, not the name", *id, kind, kind)
	}
	*id = strings.ToLower(*id)
}
