// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// place is where a port hangs. The zero value is not on a trunk.
type place struct {
	subport bool
	trunkID string     // empty if that of a subport is not known
	named   bool       // it has a name of its own, not sdn.FreePortName
	parent  string     // port whose address pairs let it pass; empty: none
	pairs   []wirePair // those of it that the parent has; nil if not known
}

func placeOf(w wirePort) place {
	p := place{subport: w.DeviceOwner == subportDeviceOwner, named: w.Name != sdn.FreePortName, parent: w.mark().Parent}
	if p.parent != "" && w.MACAddress != "" {
		p.pairs = pairsOf(w)
	}
	return p
}

// inventoried takes over an inventory: its ports are known. A port that was known before the inventory
// began and is not in it is gone, or has lost its mark.
func (b *Neutron) inventoried(before map[string]place, now map[string]wirePort) {
	for id := range before {
		if _, ok := now[id]; !ok {
			b.known.Delete(id)
		}
	}
	for id, w := range now {
		b.known.Compute(id, func(old place, _ bool) (place, xsync.ComputeOp) {
			p := placeOf(w)
			if old.subport { // it may have become one since it was listed
				p.subport, p.trunkID = true, old.trunkID
			}
			p.pairs = old.pairs
			return p, xsync.UpdateOp
		})
	}
}

// own finds out whether a port is this cluster's, asking only if it is not
// known: ErrNotFound if not.
func (b *Neutron) own(ctx context.Context, id string) (place, error) {
	if p, ok := b.known.Load(id); ok {
		return p, nil
	}
	w, err := b.readPort(ctx, id, markFields)
	if err != nil {
		return place{}, err
	}
	p, _ := b.known.Load(w.ID)
	return p, nil
}

// markFields are what readPort needs at least.
var markFields = []string{"id", "name", "description", "device_owner"}

// readPort reads a port of this cluster; fields must have markFields. The port is known from then on.
func (b *Neutron) readPort(ctx context.Context, id string, fields []string) (wirePort, error) {
	w, err := getOwn[wirePort](ctx, b, portKind, id, fields...)
	if err != nil {
		return wirePort{}, err
	}
	b.known.Store(id, placeOf(w))
	return w, nil
}
