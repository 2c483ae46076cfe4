// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nested

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
)

// machinePort is the machine's port, with what of its subnet the machine needs.
type machinePort struct {
	ports.Port
	subnet subnets.Subnet
}

func (p machinePort) ip() string { return p.FixedIPs[0].IPAddress }

// prefix is the address as it is set on the interface.
func (p machinePort) prefix() string {
	return fmt.Sprintf("%s/%d", p.ip(), netip.MustParsePrefix(p.subnet.CIDR).Bits())
}

// later runs f at the end of the test; what it finds gone is well.
func (b bed) later(what string, f func(ctx context.Context) error) {
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), patience)
		defer cancel()
		if err := f(ctx); err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			b.t.Errorf("%s: %v", what, err)
		}
	})
}

// machinePort makes the machine's port, in a network beside the pods', which is
// routed as theirs is.
func (b bed) machinePort() machinePort {
	b.t.Helper()
	subnet, err := subnets.Get(b.t.Context(), b.Neutron, os.Getenv("SERVICE_SUBNET")).Extract()
	if err != nil {
		b.t.Fatalf("reading the machine's subnet: %v", err)
	}
	made, err := ports.Create(b.t.Context(), b.Neutron, portsbinding.CreateOptsExt{
		HostID: host,
		CreateOptsBuilder: ports.CreateOpts{
			Name: "nested-e2e", NetworkID: subnet.NetworkID, DeviceOwner: "compute:nested",
			SecurityGroups: &[]string{os.Getenv("POD_SG")}, FixedIPs: []ports.IP{{SubnetID: subnet.ID}},
		},
	}).Extract()
	if err != nil {
		b.t.Fatalf("making the machine's port: %v", err)
	}
	b.later("deleting the machine's port", func(ctx context.Context) error { return ports.Delete(ctx, b.Neutron, made.ID).ExtractErr() })
	return machinePort{*made, *subnet}
}

func (b bed) trunk(parent string) string {
	b.t.Helper()
	trunk, err := trunks.Create(b.t.Context(), b.Neutron, trunks.CreateOpts{Name: "nested-e2e", PortID: parent}).Extract()
	if err != nil {
		b.t.Fatalf("making a trunk: %v", err)
	}
	b.later("deleting the trunk", func(ctx context.Context) error { return trunks.Delete(ctx, b.Neutron, trunk.ID).ExtractErr() })
	return trunk.ID
}

// subports returns the VLAN IDs of a trunk's subports, by port.
func (b bed) subports(trunk string) map[string]int {
	b.t.Helper()
	all, err := trunks.GetSubports(b.t.Context(), b.Neutron, trunk).Extract()
	if err != nil {
		b.t.Fatalf("reading the trunk's subports: %v", err)
	}
	ids := map[string]int{}
	for _, s := range all {
		ids[s.PortID] = s.SegmentationID
	}
	return ids
}

// pairs returns the addresses that the machine's port may have besides its own.
func (b bed) pairs(own machinePort) []string {
	b.t.Helper()
	p, err := b.Port(b.t.Context(), own.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	for _, pair := range p.AllowedAddressPairs {
		all = append(all, pair.IPAddress)
	}
	return all
}

// sh runs a command here.
func (b bed) sh(command ...string) {
	b.t.Helper()
	if out, err := run(command...); err != nil {
		b.t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}

// tap makes the virtual machine's end on the host, and has Open vSwitch there take
// it as the port's.
func (b bed) tap(p machinePort) {
	b.t.Helper()
	in := []string{"ip", "-n", netnsOf + host}
	_, _ = run(append(in, "link", "del", device)...)
	b.sh(append(in, "tuntap", "add", device, "mode", "tap")...)
	b.t.Cleanup(func() { _, _ = run(append(in, "link", "del", device)...) })
	b.sh(append(in, "link", "set", device, "mtu", "1500", "up")...)
	db := "--db=" + os.Getenv("OVS_"+strings.ToUpper(host))
	b.sh("ovs-vsctl", "--timeout=30", db, "--may-exist", "add-port", "br-int", device, "--", "set", "Interface", device,
		"external_ids:iface-id="+p.ID, "external_ids:iface-status=active", fmt.Sprintf("external_ids:attached-mac=%q", p.MACAddress))
	b.t.Cleanup(func() { b.sh("ovs-vsctl", "--timeout=30", db, "--if-exists", "del-port", "br-int", device) })
}
