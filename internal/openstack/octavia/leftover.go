// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Octavia creates the port of a new load balancer's VIP before it checks what is below the load
// balancer. If Octavia then refuses a part, as for a quota, or octavia-api dies, the database
// forgets the load balancer, and nothing ever deletes the port. The Service could not use its
// VIP any more. OVN's driver (3.0.0) and amphora (Zed to 2025.1) both do so.

// Both drivers create the port in the project of the load balancer. A port of another project is
// somebody else's, of a load balancer under creation perhaps, which Octavia does not show yet. Kuryr
// never deletes it.
//
// In the same project, a refused creation proves that the port is left over. Octavia locks the
// project's quota before it creates the port, until it commits (check_quota_met, Zed to 2025.1). A
// creation that got as far as its port has waited for all earlier ones. leftoverAge is for clocks
// that differ a little. A database with several writers would need longer: their locks do not
// exclude each other, so OpenStack does not support them.
const leftoverAge = 10 * time.Second

// leftoverLong is the age at which a port without a load balancer is left over in any case.
const leftoverLong = time.Hour

type vipPort struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	DeviceOwner string    `json:"device_owner"`
	DeviceID    string    `json:"device_id"`
	ProjectID   string    `json:"project_id"`
	Created     time.Time `json:"created_at"`
	FixedIPs    []struct {
		Address string `json:"ip_address"`
		Subnet  string `json:"subnet_id"`
	} `json:"fixed_ips"`
}

// Key implements session.Listable.
func (p vipPort) Key() string { return p.ID }

// loadBalancer returns the ID of the load balancer whose VIP a port has, by what the drivers
// write into the port; empty: none. Amphora's other ports are named octavia-lb-vrrp-….
func (p vipPort) loadBalancer() string {
	if id, is := strings.CutPrefix(p.Name, "ovn-lb-vip-"); is {
		return id
	}
	id, is := strings.CutPrefix(p.Name, "octavia-lb-")
	if is && p.DeviceOwner == "Octavia" && p.DeviceID == "lb-"+id {
		return id
	}
	return ""
}

// portAt returns the port that has a VIP; one without an ID if none has it.
func (b *Octavia) portAt(ctx context.Context, vip v1.VIPAddress) (vipPort, error) {
	if vip.IP == "" {
		return vipPort{}, nil
	}
	all, err := b.portsAt(ctx, true, "ip_address="+vip.IP, "subnet_id="+vip.SubnetID)
	if err != nil {
		return vipPort{}, fmt.Errorf("looking for the port that has %s: %w", vip.IP, err)
	}
	if len(all) == 0 {
		return vipPort{}, nil
	}
	return all[0], nil
}

func (b *Octavia) portsAt(ctx context.Context, creates bool, fixedIPs ...string) ([]vipPort, error) {
	query := url.Values{
		"fields":    {"id", "name", "device_owner", "device_id", "project_id", "created_at", "fixed_ips"},
		"fixed_ips": fixedIPs,
	}
	return session.ReadAll[vipPort](ctx, b.Client, session.Request{Path: []string{"ports"}, Query: query, Creates: creates}, nil)
}

// LeftVIPs implements sdn.LoadBalancers: a list of ports, and if one of them is of an unknown load
// balancer, a list of the project's load balancers. One that was created after the port proves, like
// a refused creation, that the port's creation has ended. It returns nothing in a subnet without a
// load balancer of this cluster.
func (b *Octavia) LeftVIPs(ctx context.Context, projectID, subnetID string) (map[string]v1.VIPAddress, error) {
	project, err := b.ProjectOr(ctx, projectID)
	if err != nil {
		return nil, err
	}
	ports, err := b.portsAt(ctx, false, "subnet_id="+subnetID)
	if err != nil {
		return nil, fmt.Errorf("listing the ports of subnet %s: %w", subnetID, err)
	}
	known, _ := b.balancers.known()
	// A known load balancer there shows that this Octavia belongs to this Neutron. That of another region
	// shows no load balancer at all.
	if !slices.ContainsFunc(ports, func(p vipPort) bool { return known[p.loadBalancer()] }) {
		return nil, nil
	}
	ports = slices.DeleteFunc(ports, func(p vipPort) bool {
		id := p.loadBalancer()
		return id == "" || known[id] || !sdn.SameID(p.ProjectID, project) || p.Created.IsZero()
	})
	if len(ports) == 0 {
		return nil, nil
	}
	a, err := b.balancerAPI(ctx)
	if err != nil {
		return nil, err
	}
	all, err := listBalancing[wireBalancer](ctx, b, url.Values{a.project: {project}}, "loadbalancers")
	if err != nil {
		return nil, fmt.Errorf("listing the load balancers of project %s: %w", project, err)
	}
	there, last := map[string]bool{}, time.Now().Add(leftoverAge-leftoverLong)
	for _, w := range all {
		there[w.ID] = true
		if at := w.created(); at.After(last) {
			last = at
		}
	}
	left := map[string]v1.VIPAddress{}
	for _, p := range ports {
		if !there[p.loadBalancer()] && last.After(p.Created.Add(leftoverAge)) {
			for _, ip := range p.FixedIPs {
				left[p.ID] = v1.VIPAddress{IP: ip.Address, SubnetID: ip.Subnet}
			}
		}
	}
	return left, nil
}

// freeLeftover deletes a port of a project if it has the VIP of a load balancer that does not
// exist, and reports whether it did. An empty project is the credential's.
func (b *Octavia) freeLeftover(ctx context.Context, p vipPort, project string) (_ bool, err error) {
	balancer := p.loadBalancer()
	if balancer != "" {
		project, err = b.ProjectOr(ctx, project)
	}
	if err != nil || balancer == "" || p.ProjectID == "" || !sdn.SameID(p.ProjectID, project) {
		return false, err
	}
	err = b.lb(ctx, http.MethodGet, balancer, nil, nil, "loadbalancers", balancer)
	switch {
	case err == nil, errors.Is(err, sdn.ErrNoService): // without Octavia it is unknown
		return false, nil
	case !errors.Is(err, sdn.ErrNotFound):
		return false, fmt.Errorf("looking for load balancer %s, whose port %s is: %w", balancer, p.ID, err)
	}
	err = b.Do(ctx, session.Request{Method: http.MethodDelete, Path: []string{"ports", p.ID}, Subject: "PortNotFound"})
	if err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return false, fmt.Errorf("deleting port %s, which a refused load balancer has left: %w", p.ID, err)
	}
	return true, nil
}

// FreeVIP implements sdn.LoadBalancers: a GET, and two more requests if such a port exists.
func (b *Octavia) FreeVIP(ctx context.Context, projectID string, vip v1.VIPAddress, portID string) error {
	p, err := b.portAt(ctx, vip)
	if err == nil && cmp.Or(portID, p.ID) == p.ID {
		_, err = b.freeLeftover(ctx, p, projectID)
	}
	if err != nil {
		return fmt.Errorf("freeing %s of subnet %s: %w", vip.IP, vip.SubnetID, err)
	}
	return nil
}

// afterRefusal deletes the port that a refused creation in a project has left behind; began is when
// the creation began. A port that cannot be deleted now makes the next creation fail, which deletes
// it once it is old.
func (b *Octavia) afterRefusal(ctx context.Context, vip v1.VIPAddress, project string, began time.Time) {
	p, err := b.portAt(ctx, vip)
	// Neutron writes the time in whole seconds.
	if err == nil && !p.Created.IsZero() && !p.Created.Before(began.Truncate(time.Second)) {
		_, _ = b.freeLeftover(ctx, p, project)
	}
}

// afterConflict finds the port that has the VIP of a new load balancer which Neutron refused,
// and deletes a leftover. It reports whether to repeat the creation, and returns the error as it
// is known now. project is the one of the new load balancer; empty: the credential's.
//
// Amphora of 2023.2 to 2025.1 passes on any conflict of Neutron without its message: a quota of
// ports, a full subnet, or an address in use.
func (b *Octavia) afterConflict(ctx context.Context, vip v1.VIPAddress, project string, conflict error) (again bool, err error) {
	p, err := b.portAt(ctx, vip)
	switch {
	case err != nil:
		return false, conflict
	case p.ID == "" && !errors.Is(conflict, session.ErrWordless):
		return false, conflict
	case p.ID == "" && vip.IP != "":
		return false, fmt.Errorf("%s; no port has %s, so the project's quota of ports is used up: %w", conflict.Error(), vip.IP, sdn.ErrQuota)
	case p.ID == "":
		return false, fmt.Errorf("%s; the project's quota of ports is used up, or the addresses of subnet %s: %w", conflict.Error(), vip.SubnetID, sdn.ErrQuota)
	}
	if !p.Created.IsZero() && time.Since(p.Created) >= leftoverAge {
		if again, err = b.freeLeftover(ctx, p, project); err == nil && again {
			return true, nil
		}
	}
	return false, fmt.Errorf("port %s of project %s has %s: %w", p.ID, p.ProjectID, vip.IP, conflict)
}
