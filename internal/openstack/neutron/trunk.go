// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// maxVLAN is the last VLAN ID that may be used; 4095 is reserved.
const maxVLAN = 4094

// attachTries limits how often VLAN IDs are chosen again because another user took one of them
// between the read of the trunk and the request.
const attachTries = 3

// trunkIsThere finds out, before anything is made, whether a port has a trunk. It
// asks only if it has not seen it.
func (b *Neutron) trunkIsThere(ctx context.Context, parentID string) error {
	lock := b.parents.of(parentID)
	if lock.trunk.Load() {
		return nil
	}
	_, err := b.trunkAt(ctx, parentID)
	lock.trunk.Store(err == nil)
	return err
}

// trunkAt returns the trunk of a parent port, with its subports and the parent's status.
func (b *Neutron) trunkAt(ctx context.Context, parentID string) (wireTrunk, error) {
	port, err := getNamed[wirePort](ctx, b.Client, portKind, parentID, "id", "status", "trunk_details")
	if err != nil {
		err = fmt.Errorf("reading the trunk of port %s: %w", parentID, err)
		if errors.Is(err, sdn.ErrInvalid) { // there is no such port
			err = &sdn.InvalidError{Field: sdn.FieldParentPort, Value: parentID, Err: err}
		}
		return wireTrunk{}, err
	}
	if port.Trunk == nil || port.Trunk.TrunkID == "" {
		return wireTrunk{}, &sdn.InvalidError{Field: sdn.FieldParentPort, Value: parentID, Err: fmt.Errorf("port %s is not the parent of a trunk: %w", parentID, sdn.ErrInvalid)}
	}
	t := *port.Trunk
	t.ID, t.PortID, t.active = t.TrunkID, parentID, port.Status == statusActive
	return t, nil
}

// trunkPlace is where a subport is.
type trunkPlace struct {
	trunkID, parentID string
	vlan              int32
}

// trunkOf returns a subport's place: ErrConflict if it is on no trunk. Concurrent callers share the
// answer.
func (b *Neutron) trunkOf(ctx context.Context, portID string) (trunkPlace, error) {
	all, err := b.leaving.look.Get(ctx, struct{}{}, 0, func(ctx context.Context) (map[string]trunkPlace, error) {
		time.Sleep(gather)
		return b.trunkPlaces(ctx)
	})
	at, ok := all[portID]
	if err == nil && !ok {
		err = fmt.Errorf("it is on no trunk: %w", sdn.ErrConflict)
	}
	return at, err
}

// trunkPlaces returns the places of all subports that there are.
func (b *Neutron) trunkPlaces(ctx context.Context) (map[string]trunkPlace, error) {
	r := session.Request{Path: []string{trunkKind.many}, Query: byID(nil, []string{"id", "port_id", "sub_ports"}), Subject: trunkKind.missing}
	trunks, err := session.ReadAll[wireTrunk](ctx, b.Client, r, nil)
	if err != nil {
		return nil, fmt.Errorf("reading trunks: %w", err)
	}
	out := map[string]trunkPlace{}
	for _, t := range trunks {
		for _, s := range t.Subports {
			out[s.PortID] = trunkPlace{t.ID, t.PortID, s.SegmentationID}
		}
	}
	return out, nil
}

// attach puts ports on the trunk of a parent port, in one request, and returns
// their VLANs, and whether the parent is ACTIVE.
func (b *Neutron) attach(ctx context.Context, parentID string, ports []wirePort) (vlans []int32, active bool, err error) {
	lock := b.parents.of(parentID)
	if err := lock.lock(ctx, b.Config.RequestTimeout); err != nil {
		return nil, false, err
	}
	defer lock.unlock()
	b.parents.trunks.Store(true)
	for try := 1; ; try++ {
		trunk, err := b.trunkAt(ctx, parentID)
		if err != nil {
			lock.trunk.Store(false)
			return nil, false, err
		}
		vlans, err := freeVLANs(trunk.Subports, lock.last, len(ports))
		if err != nil {
			return nil, false, fmt.Errorf("choosing VLANs on the trunk of port %s: %w", parentID, err)
		}
		// Known before it is so: if the answer is lost, deleting them will look.
		for _, p := range ports {
			b.known.Store(p.ID, place{subport: true, trunkID: trunk.ID})
		}
		err = b.addSubports(ctx, trunk.ID, ports, vlans)
		if err == nil {
			lock.last = vlans[len(vlans)-1]
			return vlans, trunk.active, nil
		}
		if !errors.Is(err, sdn.ErrConflict) || try == attachTries {
			return nil, false, fmt.Errorf("adding %d subports to the trunk of port %s: %w", len(ports), parentID, err)
		}
	}
}

func (b *Neutron) addSubports(ctx context.Context, trunkID string, ports []wirePort, vlans []int32) error {
	subports := make([]wireSubport, len(ports))
	for i, p := range ports {
		subports[i] = wireSubport{PortID: p.ID, SegmentationType: "vlan", SegmentationID: vlans[i]}
	}
	return b.Do(ctx, session.Request{
		Method: http.MethodPut, Path: []string{"trunks", trunkID, "add_subports"},
		Body: object{"sub_ports": subports}, Once: true, Creates: true,
	})
}

// freeVLANs returns the next n VLANs after last that no subport has.
func freeVLANs(subports []wireSubport, last int32, n int) ([]int32, error) {
	used := map[int32]bool{}
	for _, s := range subports {
		used[s.SegmentationID] = true
	}
	var free []int32
	for i := range int32(maxVLAN) {
		if v := (last+i)%maxVLAN + 1; !used[v] {
			free = append(free, v)
		}
		if len(free) == n {
			return free, nil
		}
	}
	return nil, fmt.Errorf("%d of %d are free, %d are needed: %w", len(free), maxVLAN, n, sdn.ErrQuota)
}

// detach takes a port off its trunk; trunkID may be empty. It succeeds if the port is on none. It
// is ErrInvalid if the trunk does not exist, or refuses because it is disabled.
func (b *Neutron) detach(ctx context.Context, portID, trunkID string) error {
	if trunkID == "" {
		at, err := b.trunkOf(ctx, portID)
		if errors.Is(err, sdn.ErrConflict) {
			return nil
		}
		if err != nil {
			return err
		}
		trunkID = at.trunkID
	}
	return session.IgnoreNotFound(b.leave(ctx, portID, trunkID))
}
