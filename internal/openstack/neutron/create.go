// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// maxBulk is the highest number of ports in one POST. Neutron makes them one by one (50 took 21 s
// on two cores), and an answer that comes too late is lost. For a caller with at most maxBulk
// ports, the duration of the call is that of one request.
const maxBulk = 50

// CreatePorts implements sdn.Ports: one POST for up to maxBulk ports, and further POSTs in
// sequence. Neutron makes all ports of a POST or none. So if a quota stops a POST, CreatePorts
// requests ever smaller halves until it knows the free room.
func (b *Neutron) CreatePorts(ctx context.Context, owner sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	if n <= 0 {
		return nil, nil
	}
	ports, err := b.createPorts(ctx, owner, r, n)
	if err == nil {
		return ports, nil
	}
	where := fmt.Sprintf("on host %q", r.Host)
	if r.ParentPortID != "" {
		where = "on the trunk of port " + r.ParentPortID
	}
	return ports, fmt.Errorf("creating %d ports in subnet %s %s, of which %d were made: %w", n, subnetsNamed(r), where, len(ports), err)
}

// subnetsNamed returns the subnets of a request, for messages.
func subnetsNamed(r sdn.PortRequest) string {
	var out []string
	for _, id := range r.SubnetIDs {
		out = append(out, strings.Join(append([]string{id}, r.MoreSubnetIDs[id]...), " or "))
	}
	return strings.Join(out, ", ")
}

func (b *Neutron) createPorts(ctx context.Context, owner sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	m := session.Mark{Cluster: b.Config.ClusterID, Owner: owner}
	if byPairs(r) {
		m.Parent = r.ParentPortID
	}
	description, err := m.Description()
	if err != nil {
		return nil, err
	}
	if len(r.SubnetIDs) == 0 {
		return nil, &sdn.InvalidError{Field: sdn.FieldSubnet, Err: fmt.Errorf("no subnet is named: %w", sdn.ErrInvalid)}
	}
	var full error
	if r.ParentPortID != "" {
		if n, full, err = b.roomOn(ctx, r, n); err != nil {
			return nil, err
		}
	}
	var ports []sdn.Port
	for _, ids := range b.choicesOf(r) {
		var some []sdn.Port
		some, err = b.createIn(ctx, m, description, r, ids, n-len(ports))
		if ports = append(ports, some...); !errors.Is(err, sdn.ErrAddresses) {
			if err == nil {
				b.took(r, ids)
			}
			break
		}
	}
	return ports, cmp.Or(err, full)
}

// createIn makes n ports with an address of each of these subnets.
func (b *Neutron) createIn(ctx context.Context, m session.Mark, description string, r sdn.PortRequest, ids []string, n int) ([]sdn.Port, error) {
	subnets, err := b.subnetsOf(ctx, r, ids)
	if err != nil {
		return nil, err
	}
	body := newPort{
		ProjectID: r.ProjectID, NetworkID: subnets[0].networkID, Name: sdn.FreePortName, Description: description,
		// A port behind a parent reserves its addresses only. If it were enabled, OVN would have
		// its MAC address at two ports, and would not deliver it to the parent.
		AdminStateUp: !byPairs(r), DeviceOwner: deviceOwner, SecurityGroups: session.NotNil(r.SecurityGroupIDs), HostID: r.Host,
	}
	for _, s := range subnets {
		body.FixedIPs = append(body.FixedIPs, wireIP{SubnetID: s.id})
	}
	if r.ParentPortID != "" {
		body.HostID = ""
	}
	if b.mayTag(ctx) {
		body.Tags = m.Tags()
	}
	ports, err := b.makeAll(ctx, body, subnets, r, n)
	if errors.Is(err, sdn.ErrInvalid) {
		b.details.forget(subnets) // the cached details may be the cause
	}
	return ports, err
}

// byPairs reports whether the ports of a request are address pairs of their parent. Otherwise ports
// with a parent are subports of its trunk.
func byPairs(r sdn.PortRequest) bool { return r.ParentPortID != "" && r.VIFType == macvlan }

// roomOn finds out, before anything is made, whether the request's parent can carry ports. fit is
// how many of n it can carry, if that is known. full is why it cannot carry all.
func (b *Neutron) roomOn(ctx context.Context, r sdn.PortRequest, n int) (fit int, full, err error) {
	if byPairs(r) {
		return b.roomOnParent(ctx, r.ParentPortID, len(r.SubnetIDs), n)
	}
	return n, nil, b.trunkIsThere(ctx, r.ParentPortID)
}

// subnetsOf returns these subnets of the request, which are of one network.
func (b *Neutron) subnetsOf(ctx context.Context, r sdn.PortRequest, ids []string) ([]subnet, error) {
	subnets, err := b.details.all(ctx, ids)
	if err != nil {
		return nil, err
	}
	network := r.NetworkID
	if network == "" {
		network = subnets[0].networkID
	}
	for _, s := range subnets {
		if s.networkID != network {
			return nil, &sdn.InvalidError{Field: sdn.FieldNetwork, Value: network, Err: fmt.Errorf("subnet %s is of network %s, not of %s: %w", s.id, s.networkID, network, sdn.ErrInvalid)}
		}
	}
	return subnets, nil
}

// makeAll makes n ports, or as many as the cloud has room for. The ports of one POST are bound or
// attached before the next POST.
//
// Neutron 21 answers 500 to a bulk request for ports in a network with an IPv6 subnet whose addresses
// are made of MAC addresses: it chooses addresses before MAC addresses. So after such an answer the
// ports are made one by one.
func (b *Neutron) makeAll(ctx context.Context, body newPort, subnets []subnet, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	var ports []sdn.Port
	for size, bulk := min(n, maxBulk), true; len(ports) < n; {
		size = min(size, n-len(ports))
		made, err := b.post(ctx, body, size, bulk)
		if errors.Is(err, sdn.ErrQuota) && size > 1 {
			size /= 2
			continue
		}
		if errors.Is(err, session.ErrCrash) && bulk {
			size, bulk = 1, false
			continue
		}
		some, err := b.finish(ctx, made, subnets, r, err)
		for _, p := range some {
			p.Arrange(r.SubnetIDs, r.MoreSubnetIDs) // Neutron orders addresses by their text, and may have added some
			ports = append(ports, p)
		}
		if err != nil {
			return ports, err
		}
	}
	return ports, nil
}

// post makes n ports by one request. One that is no bulk request makes a single port.
func (b *Neutron) post(ctx context.Context, body newPort, n int, bulk bool) ([]wirePort, error) {
	ports := object{"port": body}
	if bulk {
		ports = object{"ports": slices.Repeat([]newPort{body}, n)}
	}
	var out struct {
		Port  wirePort   `json:"port"`
		Ports []wirePort `json:"ports"`
	}
	if err := b.Do(ctx, session.Request{Method: http.MethodPost, Path: []string{"ports"}, Body: ports, Out: &out, Creates: true}); err != nil {
		return nil, err
	}
	if !bulk {
		out.Ports = []wirePort{out.Port}
	}
	for _, w := range out.Ports {
		b.known.Store(w.ID, placeOf(w))
	}
	if len(out.Ports) != n {
		return out.Ports, fmt.Errorf("%w: Neutron answered with %d ports instead of %d", sdn.ErrUnavailable, len(out.Ports), n)
	}
	return out.Ports, nil
}

// finish binds or attaches the new ports, deletes those that cannot be, and returns the others with
// the first error.
func (b *Neutron) finish(ctx context.Context, made []wirePort, subnets []subnet, r sdn.PortRequest, stopped error) ([]sdn.Port, error) {
	if len(made) == 0 {
		return nil, stopped
	}
	if byPairs(r) {
		ports, err := b.finishBehind(ctx, made, subnets, r.ParentPortID)
		return ports, cmp.Or(err, stopped)
	}
	if r.ParentPortID != "" {
		ports, err := b.finishSubports(ctx, made, subnets, r)
		return ports, cmp.Or(err, stopped)
	}
	made, err := b.bound(ctx, made, r)
	var ports []sdn.Port
	for _, w := range made {
		p := portOf(w, subnets)
		if r.VIFType != "" {
			p.VIF.Type = r.VIFType
		}
		ports = append(ports, p)
	}
	return ports, cmp.Or(err, stopped)
}

func (b *Neutron) finishSubports(ctx context.Context, made []wirePort, subnets []subnet, r sdn.PortRequest) ([]sdn.Port, error) {
	vlans, active, err := b.attach(ctx, r.ParentPortID, made)
	if err != nil {
		return nil, b.undo(ctx, made, err)
	}
	if active {
		// A pod that waits for the ports needs to know whether they are ACTIVE; most are by now. If
		// the request fails, the ports are returned as they were made.
		made, _ = b.lookAgain(ctx, made)
	}
	ports := make([]sdn.Port, len(made))
	for i, w := range made {
		ports[i] = portOf(w, subnets)
		onTrunk(&ports[i], r.ParentPortID, vlans[i])
		if r.VIFType != "" {
			ports[i].VIF.Type = r.VIFType
		}
	}
	return ports, nil
}

// finishBehind makes the parent let ports pass, and deletes those for which it has no room.
func (b *Neutron) finishBehind(ctx context.Context, made []wirePort, subnets []subnet, parentID string) ([]sdn.Port, error) {
	n, err := b.admit(ctx, parentID, made)
	if err != nil {
		err = b.undo(ctx, made[n:], err)
	}
	var ports []sdn.Port
	for _, w := range made[:n] {
		p := portOf(w, subnets)
		onParent(&p, parentID)
		ports = append(ports, p)
	}
	return ports, err
}

// undoTime bounds the deletion of useless ports, which continues after the caller's context has
// ended.
const undoTime = time.Minute

// undo deletes ports and returns why. A port that cannot be deleted carries the mark and is
// collected as an orphan. The error is then also an ErrUnavailable, and mentions the port.
func (b *Neutron) undo(ctx context.Context, ports []wirePort, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	kept := make([]string, len(ports))
	var all sync.WaitGroup
	for i, w := range ports { // at once, because subports leave their trunk together
		all.Go(func() {
			if b.DeletePort(ctx, w.ID) != nil {
				kept[i] = w.ID
			}
		})
	}
	all.Wait()
	if left := slices.DeleteFunc(kept, func(id string) bool { return id == "" }); len(left) > 0 {
		return fmt.Errorf("%w (%w: %d ports could not be deleted at once and are left to the orphan collector: %s)",
			why, sdn.ErrUnavailable, len(left), strings.Join(left, ", "))
	}
	return why
}

// tagExtension exists if a POST of ports may have tags. Without it Neutron accepts tags and drops
// them (seen with Zed).
const tagExtension = "tag-ports-during-bulk-creation"

// mayTag reports whether ports can be created with tags. It asks Neutron once. If Neutron does not
// answer, it asks again next time; until then the description is enough.
func (b *Neutron) mayTag(ctx context.Context) bool {
	aliases, err := b.extensions.Get(ctx, struct{}{}, sdn.Always, b.askExtensions)
	return err == nil && slices.Contains(aliases, tagExtension)
}

// askExtensions lists Neutron's extensions.
func (b *Neutron) askExtensions(ctx context.Context) ([]string, error) {
	var body struct {
		Extensions []struct{ Alias string }
	}
	err := b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"extensions"}, Query: url.Values{"fields": {"alias"}}, Out: &body, Creates: true,
	})
	aliases := make([]string, 0, len(body.Extensions))
	for _, e := range body.Extensions {
		aliases = append(aliases, e.Alias)
	}
	return aliases, err
}
