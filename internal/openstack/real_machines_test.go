// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// makePort makes a port as raw says, which goes when the test is over.
func (r *realCloud) makePort(t *testing.T, raw object) ports.Port {
	t.Helper()
	raw["project_id"], raw["security_groups"] = r.project, []string{}
	var out struct{ Port ports.Port }
	_, err := r.client.Post(t.Context(), r.client.ServiceURL("ports"), object{"port": raw}, &out, nil)
	must(t, err)
	after(t, "port", func(ctx context.Context) error { return r.removePort(ctx, out.Port.ID) })
	return out.Port
}

// removePort takes a port off the trunk and deletes it.
func (r *realCloud) removePort(ctx context.Context, id string) error {
	if r.trunk == "" {
		return ports.Delete(ctx, r.client, id).ExtractErr()
	}
	_, err := trunks.RemoveSubports(ctx, r.client, r.trunk, trunks.RemoveSubportsOpts{Subports: []trunks.RemoveSubport{{PortID: id}}}).Extract()
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return err
	}
	return ports.Delete(ctx, r.client, id).ExtractErr()
}

// MakeMachine implements sdntest.Cloud.
func (r *realCloud) MakeMachine(t *testing.T, subnetID string, trunk bool) (portID, address string) {
	p := r.makePort(t, object{"network_id": r.network, "name": "machine", "device_id": sdntest.ServerID, "fixed_ips": []object{{"subnet_id": subnetID}}})
	if trunk {
		r.makeTrunkOf(t, p.ID)
	}
	return p.ID, p.FixedIPs[0].IPAddress
}

// makeTrunkOf makes a port the parent of a trunk, until the test is over.
func (r *realCloud) makeTrunkOf(t *testing.T, portID string) (id string) {
	made, err := trunks.Create(t.Context(), r.client, trunks.CreateOpts{PortID: portID, ProjectID: r.project, Name: "machine"}).Extract()
	must(t, err)
	after(t, "trunk", func(ctx context.Context) error { return trunks.Delete(ctx, r.client, made.ID).ExtractErr() })
	return made.ID
}

func (r *realCloud) trunkStatus(t *testing.T, id string) string {
	got, err := trunks.Get(t.Context(), r.client, id).Extract()
	must(t, err)
	return got.Status
}

// RemoveMachine implements sdntest.Cloud.
func (r *realCloud) RemoveMachine(t *testing.T, portID string) {
	must(t, ports.Delete(t.Context(), r.client, portID).ExtractErr())
}

// MakeTwin implements sdntest.Cloud.
func (r *realCloud) MakeTwin(t *testing.T, address string) (portID, subnetID string) {
	net, err := networks.Create(t.Context(), r.client, networks.CreateOpts{Name: "kuryr-contract-twin", ProjectID: r.project}).Extract()
	must(t, err)
	after(t, "twin network", func(ctx context.Context) error { return networks.Delete(ctx, r.client, net.ID).ExtractErr() })
	var subnet struct{ Subnet struct{ ID string } }
	_, err = r.client.Post(t.Context(), r.client.ServiceURL("subnets"), object{"subnet": object{
		"network_id": net.ID, "cidr": "10.253.0.0/24", "ip_version": 4, "gateway_ip": "10.253.0.7", "enable_dhcp": false, "project_id": r.project,
	}}, &subnet, nil)
	must(t, err)
	p := r.makePort(t, object{"network_id": net.ID, "name": "twin", "device_id": sdntest.ServerID, "fixed_ips": []object{{"ip_address": address}}})
	return p.ID, subnet.Subnet.ID
}

// MakeAutomaticSubnet implements sdntest.Cloud: by SLAAC, without a router.
func (r *realCloud) MakeAutomaticSubnet(t *testing.T, prefix netip.Prefix) string {
	return r.makeSubnet(t, object{"cidr": prefix.String(), "ip_version": 6, "ipv6_address_mode": "slaac"})
}

// MakeSubnet implements sdntest.Cloud.
func (r *realCloud) MakeSubnet(t *testing.T, prefix netip.Prefix) string {
	return r.makeSubnet(t, object{"cidr": prefix.String(), "ip_version": 4, "enable_dhcp": false})
}

func (r *realCloud) makeSubnet(t *testing.T, raw object) string {
	raw["network_id"], raw["gateway_ip"], raw["project_id"] = r.network, nil, r.project
	var out struct{ Subnet struct{ ID string } }
	_, err := r.client.Post(t.Context(), r.client.ServiceURL("subnets"), object{"subnet": raw}, &out, nil)
	must(t, err)
	after(t, "subnet", func(ctx context.Context) error {
		_, err := r.client.Delete(ctx, r.client.ServiceURL("subnets", out.Subnet.ID), nil)
		return err
	})
	return out.Subnet.ID
}

// Pairs implements sdntest.Cloud.
func (r *realCloud) Pairs(t *testing.T, portID string) (all []sdntest.Pair) {
	p, err := ports.Get(t.Context(), r.client, portID).Extract()
	must(t, err)
	for _, pair := range p.AllowedAddressPairs {
		all = append(all, sdntest.Pair{IP: pair.IPAddress, MAC: pair.MACAddress})
	}
	return all
}

func (r *realCloud) setPairs(t *testing.T, portID string, all []sdntest.Pair) error {
	list := []ports.AddressPair{}
	for _, p := range all {
		list = append(list, ports.AddressPair{IPAddress: p.IP, MACAddress: p.MAC})
	}
	return ports.Update(t.Context(), r.client, portID, ports.UpdateOpts{AllowedAddressPairs: &list}).Err
}

// AddPair implements sdntest.Cloud.
func (r *realCloud) AddPair(t *testing.T, portID string, p sdntest.Pair) {
	must(t, r.setPairs(t, portID, append(r.Pairs(t, portID), p)))
}

// mostPairs is more than a cloud is expected to let a port have.
const mostPairs = 256

// LimitPairs implements sdntest.Cloud. The limit is an option of Neutron's that
// can neither be read nor set: it is found by trying.
func (r *realCloud) LimitPairs(t *testing.T, portID string, n int) {
	all := r.Pairs(t, portID)
	for i := range mostPairs {
		all = append(all, sdntest.Pair{IP: fmt.Sprintf("10.254.0.%d", i), MAC: "02:00:00:00:00:98"})
	}
	fits, tooMany := 0, len(all)+1
	for tooMany-fits > 1 {
		middle := (fits + tooMany) / 2
		err := r.setPairs(t, portID, all[:middle])
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusBadRequest) {
			t.Fatal(err)
		}
		if err == nil {
			fits = middle
		} else {
			tooMany = middle
		}
	}
	if fits == len(all) {
		t.Skipf("this Neutron lets a port have %d address pairs and more (max_allowed_address_pair): too many to try", mostPairs)
	}
	must(t, r.setPairs(t, portID, all[:fits-n]))
}

// MakeStray implements sdntest.Cloud.
func (r *realCloud) MakeStray(t *testing.T, q sdn.PortRequest) string {
	raw := object{
		"network_id": r.network, "name": "kuryr-pool-port", "device_owner": "compute:kuryr", "description": "made long ago",
		"fixed_ips": []object{{"subnet_id": q.SubnetIDs[0]}},
	}
	if q.Host != "" {
		raw["binding:host_id"] = q.Host
	}
	p := r.makePort(t, raw)
	for try := 0; q.ParentPortID != ""; try++ {
		taken := map[int32]bool{}
		for _, vlan := range r.Subports(t, q.ParentPortID) {
			taken[vlan] = true
		}
		vlan := 1
		for taken[int32(vlan)] {
			vlan++
		}
		_, err := trunks.AddSubports(t.Context(), r.client, r.trunk, trunks.AddSubportsOpts{Subports: []trunks.Subport{
			{PortID: p.ID, SegmentationType: "vlan", SegmentationID: vlan},
		}}).Extract()
		if err == nil {
			break
		}
		if try > 20 || !strings.Contains(err.Error(), "409") {
			t.Fatal(err)
		}
	}
	return p.ID
}

// TakeStray implements sdntest.Cloud.
func (r *realCloud) TakeStray(t *testing.T, id string) {
	uid := "3d5e2b9c-0c1d-4c4e-9b53-6f1f8b2c1a12"
	must(t, ports.Update(t.Context(), r.client, id, ports.UpdateOpts{DeviceID: &uid}).Err)
}
