// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
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
	// kubelet waits 4m for a sandbox (twice its runtimeRequestTimeout of 2m),
	// and what we say is wanted there before that.
	maxAddTimeout = 3*time.Minute + 30*time.Second
)

// exampleID stands in config/base/kuryr.yaml and config/example/kuryr.yaml.
const exampleID = "00000000-0000-0000-0000-000000000000"

var (
	uuidForm      = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	projectForm   = regexp.MustCompile(`^[0-9A-Za-z_-]{1,64}$`)
	clusterForm   = regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}$`) // as internal/sdn/neutron takes it
	vifTypeForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	interfaceForm = regexp.MustCompile(`^[^/: \t\n]{1,15}$`)
)

// check notes in d what is well written in c and yet makes no sense.
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
	checkPods(c.Pods, d)
	checkPools(c.Pools, d)
	d.between("orphans.interval", c.Orphans.Interval, time.Second, 24*time.Hour)
	d.between("orphans.grace", c.Orphans.Grace, time.Second, 24*time.Hour)
	checkNode(c.Node, d)
}

func checkNeutron(n Neutron, d *decoder) {
	d.between("neutron.requestTimeout", n.RequestTimeout, time.Second, 10*time.Minute)
	if !(n.RequestsPerSec > 0 && n.RequestsPerSec <= 10000) || math.IsNaN(n.RequestsPerSec) {
		d.fault("neutron.requestsPerSecond", "want more than 0 and at most 10000, got %v", n.RequestsPerSec)
	}
	d.bounds("neutron.maxConcurrentRequests", n.MaxConcurrent, 1, 1000)
}

func checkPods(p Pods, d *decoder) {
	if p.ProjectID != "" && !projectForm.MatchString(p.ProjectID) {
		d.fault("pods.projectID", "%q is no ID of a project: write what 'openstack project show -c id NAME' prints", p.ProjectID)
	}
	if p.NetworkID != "" {
		d.uuid("pods.networkID", p.NetworkID, "network")
	}
	if len(p.SubnetIDs) == 0 {
		d.fault("pods.subnetIDs", "missing: write the ID of the subnet that pods get their address of, or of one IPv4 and one IPv6 subnet of the same network")
	}
	d.ids("pods.subnetIDs", p.SubnetIDs, "subnet", maxAddresses)
	d.ids("pods.securityGroupIDs", p.SecurityGroupIDs, "security group", maxGroups)
	if p.VIFType != "" && !vifTypeForm.MatchString(p.VIFType) {
		d.fault("pods.vifType", "%q is no type of port: write it in lower case, as in ovs or bridge, or leave it out to plug ports as Neutron says",
			p.VIFType)
	}
}

func checkPools(p Pools, d *decoder) {
	d.bounds("pools.min", int(p.Min), 0, maxLevel)
	d.bounds("pools.max", int(p.Max), 0, maxLevel)
	if p.Max > 0 && p.Min > p.Max {
		d.fault("pools.min", "min %d is above max %d: lower min, raise max, or write max: 0 for no limit", p.Min, p.Max)
	}
	d.bounds("pools.batch", int(p.Batch), 1, maxBatch)
	d.between("pools.ttl", p.TTL, 0, math.MaxInt64)
	d.between("pools.cooldown", p.Cooldown, 0, math.MaxInt64)
}

func checkNode(n Node, d *decoder) {
	if err := checkOVSDB(n.OVSDB); err != nil {
		d.fault("node.ovsdb", "%v", err)
	}
	if !interfaceForm.MatchString(n.Bridge) || n.Bridge == "." || n.Bridge == ".." {
		d.fault("node.bridge", "%q is no name of a bridge: write 1 to 15 characters, as in br-int", n.Bridge)
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
	if len(ids) > most {
		d.fault(path, "want at most %d, got %d", most, len(ids))
	}
	for i, id := range ids {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.uuid(at, id, kind)
		if first := slices.Index(ids, id); first < i && id != "" {
			d.fault(at, "the same %s as %s[%d]: remove one", kind, path, first)
		}
	}
}

func (d *decoder) uuid(path, id, kind string) {
	switch {
	case id == exampleID:
		d.fault(path, "replace the example's ID by that of your %s: the UUID that 'openstack %s show -c id NAME' prints", kind, kind)
	case !uuidForm.MatchString(id):
		d.fault(path, "%q is no ID of a %s: write the UUID that 'openstack %s show -c id NAME' prints, not the name", id, kind, kind)
	}
}
