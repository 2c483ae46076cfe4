// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// The caller of all functions here holds the lock. A nil field of a listener becomes Octavia's
// default.

var (
	defaultTimeout  int64 = 50000
	defaultConnect  int64 = 5000
	defaultInspect  int64
	unlimited       int32 = -1
	onlineAndActive       = "ONLINE"
)

func orDefault[T any](p *T, v T) *T {
	if p == nil {
		return &v
	}
	return copied(p)
}

// inside returns the address in canonical form, if the subnet contains it.
func inside(address string, s Subnet) (string, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("%w: %w", sdn.ErrInvalid, err)
	}
	if !s.Prefix.Contains(ip) {
		return "", &sdn.InvalidError{Field: sdn.FieldSubnet, Value: s.ID, Err: fmt.Errorf("address %s is not in %s of subnet %s: %w", ip, s.Prefix, s.ID, sdn.ErrInvalid)}
	}
	return ip.String(), nil
}

func unsupported(f sdn.Features, what string, value any) error {
	return fmt.Errorf("%s %v: %w %s", what, value, sdn.ErrUnsupported, f.Provider)
}

// addListener adds a listener, with its pool if withPool is set.
func (c *Cloud) addListener(lb *balancer, want sdn.Listener, withPool bool) (*sdn.Listener, error) {
	f := c.providers[lb.Provider].Features
	if err := f.CheckListener(want); err != nil {
		return nil, err
	}
	for _, l := range lb.Listeners {
		if l.Port == want.Port && (l.Protocol == want.Protocol || !f.ManyProtocols) {
			return nil, fmt.Errorf("port %d of load balancer %s has a listener: %w", want.Port, lb.ID, sdn.ErrConflict)
		}
	}
	l := sdn.Listener{Protocol: want.Protocol, Port: want.Port, Provisioning: sdn.ProvisioningActive, Operating: onlineAndActive}
	if err := setListener(&l, f, want); err != nil {
		return nil, err
	}
	if withPool && want.Pool != nil {
		p, err := c.newPool(lb, l, *want.Pool)
		if err != nil {
			return nil, err
		}
		l.Pool = &p
	}
	l.ID = c.nextID()
	lb.Listeners = append(lb.Listeners, l)
	return &lb.Listeners[len(lb.Listeners)-1], nil
}

// setListener changes the mutable fields of a listener.
func setListener(l *sdn.Listener, f sdn.Features, want sdn.Listener) error {
	want.Protocol, want.Pool = l.Protocol, nil
	if err := f.CheckListener(want); err != nil {
		return err
	}
	for _, r := range want.SourceRanges {
		if _, err := netip.ParsePrefix(r); err != nil {
			return fmt.Errorf("source range: %w: %w", sdn.ErrInvalid, err)
		}
	}
	l.Name, l.SourceRanges = want.Name, slices.Sorted(slices.Values(want.SourceRanges))
	l.ConnectionLimit = orDefault(want.ConnectionLimit, unlimited)
	l.TimeoutClientData, l.TimeoutMemberData = orDefault(want.TimeoutClientData, defaultTimeout), orDefault(want.TimeoutMemberData, defaultTimeout)
	l.TimeoutMemberConnect, l.TimeoutTCPInspect = orDefault(want.TimeoutMemberConnect, defaultConnect), orDefault(want.TimeoutTCPInspect, defaultInspect)
	return nil
}

// newPool makes a pool for l with its members. It does not attach the pool to l.
func (c *Cloud) newPool(lb *balancer, l sdn.Listener, want sdn.Pool) (sdn.Pool, error) {
	f := c.providers[lb.Provider].Features
	p := sdn.Pool{Protocol: want.Protocol, Algorithm: f.Algorithm, Provisioning: sdn.ProvisioningActive, Operating: onlineAndActive}
	if p.Protocol == "" {
		p.Protocol = l.Protocol
	}
	proxy := strings.HasPrefix(p.Protocol, "PROXY")
	if p.Protocol != l.Protocol && !(proxy && l.Protocol == "TCP") {
		return p, fmt.Errorf("pool protocol %s behind a listener of %s: %w", p.Protocol, l.Protocol, sdn.ErrInvalid)
	}
	if err := setPool(&p, f, want); err != nil {
		return p, err
	}
	for _, m := range want.Members {
		if err := c.addMember(lb, &p, m); err != nil {
			return p, err
		}
	}
	p.ID = c.nextID()
	return p, nil
}

// setPool changes the mutable fields of a pool, except its members.
func setPool(p *sdn.Pool, f sdn.Features, want sdn.Pool) error {
	want.Protocol = p.Protocol
	if err := f.CheckPool(want); err != nil {
		return err
	}
	p.Name, p.AffinitySeconds, p.Monitor = want.Name, copied(want.AffinitySeconds), copied(want.Monitor)
	p.Algorithm = cmp.Or(want.Algorithm, p.Algorithm)
	return nil
}

func same(a sdn.Member) func(sdn.Member) bool {
	return func(b sdn.Member) bool { return a.IP == b.IP && a.Port == b.Port }
}

// addMember adds a member, or renames an existing one.
func (c *Cloud) addMember(lb *balancer, p *sdn.Pool, want sdn.Member) error {
	if i := slices.IndexFunc(p.Members, same(want)); i >= 0 {
		m := &p.Members[i]
		if m.Name = want.Name; m.Provisioning != sdn.ProvisioningActive && !c.undeletable[m.ID] {
			m.Provisioning, m.Operating = sdn.ProvisioningActive, "NO_MONITOR"
			delete(c.lost, m.ID)
		}
		return nil
	}
	ip, err := netip.ParseAddr(want.IP)
	if err != nil {
		err = fmt.Errorf("member: %w: %w", sdn.ErrInvalid, err)
		return &sdn.InvalidError{Field: sdn.FieldMember, Value: want.IP, Members: []sdn.Member{want}, Err: err}
	}
	err = c.reaches(lb, want.SubnetID, ip)
	if errors.Is(err, sdn.ErrInvalid) {
		return &sdn.InvalidError{Field: sdn.FieldSubnet, Value: want.SubnetID, Members: []sdn.Member{want}, Err: err}
	}
	if err != nil {
		return err
	}
	p.Members = append(p.Members, sdn.Member{
		ID: c.nextID(), Name: want.Name, IP: ip.String(), Port: want.Port, SubnetID: want.SubnetID,
		Provisioning: sdn.ProvisioningActive, Operating: "NO_MONITOR",
	})
	return nil
}

// reaches checks the subnet through which a member is reached.
func (c *Cloud) reaches(lb *balancer, subnetID string, ip netip.Addr) error {
	p := c.providers[lb.Provider]
	_, known := c.subnets[subnetID]
	switch {
	case subnetID == "" && p.Near && !c.subnets[lb.VIP.SubnetID].Prefix.Contains(ip):
		return unsupported(p.Features, "a member outside of the VIP's subnet that names none", ip)
	case subnetID != "" && !known:
		return fmt.Errorf("subnet %s of member %s does not exist: %w", subnetID, ip, sdn.ErrInvalid)
	case subnetID != "" && subnetID != lb.VIP.SubnetID && !p.Features.FarMembers:
		return unsupported(p.Features, "member of another subnet", ip)
	}
	return nil
}
