// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"net/http"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Port implements sdn.Ports. The VIF's type is Neutron's.
func (b *Neutron) Port(ctx context.Context, id string) (sdn.Port, error) {
	w, err := b.readPort(ctx, id, portFields)
	if err != nil {
		return sdn.Port{}, err
	}
	p, err := b.detailed(ctx, w)
	if err != nil {
		return sdn.Port{}, err
	}
	if w.DeviceOwner == subportDeviceOwner {
		at, err := b.trunkOf(ctx, id)
		if err != nil {
			return sdn.Port{}, err
		}
		onTrunk(&p, at.parentID, at.vlan)
	}
	if parentID := w.mark().Parent; parentID != "" {
		// A port whose parent does not let it pass stays unbound: it is of no use.
		by, err := b.carrier(ctx, parentID, false)
		if err != nil && !errors.Is(err, sdn.ErrNotFound) {
			return sdn.Port{}, err
		}
		if err == nil && by.carries(pairsOf(w)) {
			onParent(&p, parentID)
		}
	}
	return p, nil
}

// detailed is portOf, with the details of the port's subnets.
func (b *Neutron) detailed(ctx context.Context, w wirePort) (sdn.Port, error) {
	ids := make([]string, len(w.FixedIPs))
	for i, ip := range w.FixedIPs {
		ids[i] = ip.SubnetID
	}
	subnets, err := b.details.all(ctx, ids)
	return portOf(w, subnets), err
}

// UpdatePort implements sdn.Ports.
func (b *Neutron) UpdatePort(ctx context.Context, id string, u sdn.PortUpdate) error {
	if _, err := b.own(ctx, id); err != nil {
		return err
	}
	change := object{}
	if u.SecurityGroupIDs != nil {
		change["security_groups"] = session.NotNil(*u.SecurityGroupIDs)
	}
	if u.Name != nil {
		change["name"] = *u.Name
	}
	if u.DeviceID != nil {
		change["device_id"] = *u.DeviceID
	}
	if len(change) == 0 {
		return nil
	}
	err := b.Do(ctx, portKind.request(http.MethodPut, id, change))
	if errors.Is(err, sdn.ErrNotFound) {
		b.known.Delete(id)
	}
	if err == nil && u.Name != nil {
		b.known.Compute(id, func(p place, there bool) (place, xsync.ComputeOp) {
			if p.named = *u.Name != sdn.FreePortName; !there {
				return p, xsync.CancelOp
			}
			return p, xsync.UpdateOp
		})
	}
	return err
}

// DeletePort implements sdn.Ports.
func (b *Neutron) DeletePort(ctx context.Context, id string) error {
	return b.DeleteUnchangedPort(ctx, id, 0)
}

// DeleteUnchangedPort implements sdn.Ports. Neutron compares the revision; it does not if two changes of
// a port meet in its database.
func (b *Neutron) DeleteUnchangedPort(ctx context.Context, id string, revision int) error {
	if err := session.IgnoreNotFound(b.deletePort(ctx, id, revision)); err != nil {
		return err
	}
	b.known.Delete(id)
	return nil
}

func (b *Neutron) deletePort(ctx context.Context, id string, revision int) error {
	at, err := b.own(ctx, id)
	if err != nil {
		return err
	}
	var stays error // why it may still be on a trunk
	if at.subport {
		stays = b.release(ctx, id, at)
		if stays != nil && !errors.Is(stays, sdn.ErrInvalid) {
			return stays
		}
	}
	if at.parent != "" {
		// Before the port: should this process end between the two, the port is
		// found again, by its mark, and nothing would say whose the pairs are.
		if err := b.dismiss(ctx, id, at); err != nil {
			return err
		}
	}
	drop := portKind.request(http.MethodDelete, id, nil)
	conditional := revision > 0 && !at.subport
	if conditional {
		drop.Header = session.Unchanged(revision)
	}
	err = b.Do(ctx, drop)
	switch {
	case errors.Is(err, sdn.ErrConflict) && conditional:
		b.known.Delete(id) // somebody has changed it, or has put it on a trunk
	case errors.Is(err, sdn.ErrConflict) && stays != nil:
		// The trunk refuses, or the port is on another trunk now: Neutron's next answer decides.
		b.known.Delete(id)
		return stays
	case errors.Is(err, sdn.ErrConflict):
		// Another user may have put it on a trunk, or on another one, since: Neutron's current
		// answer decides.
		if w, again := b.readPort(ctx, id, markFields); again == nil && w.DeviceOwner == subportDeviceOwner {
			if err := b.release(ctx, id, placeOf(w)); err != nil {
				return err
			}
			err = b.Do(ctx, drop)
		}
	}
	return err
}

// release takes a subport off its trunk. Neutron then empties its device_owner,
// so should this process end before it is deleted, it is found by its name only
// (see ListPorts): a name of its own is taken from it first.
func (b *Neutron) release(ctx context.Context, id string, at place) error {
	if at.named {
		name := sdn.FreePortName
		if err := b.UpdatePort(ctx, id, sdn.PortUpdate{Name: &name}); err != nil {
			return err
		}
	}
	return b.detach(ctx, id, at.trunkID)
}
