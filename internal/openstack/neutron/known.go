// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// known are ports whose mark this process has seen, so that changing or deleting
// one needs no look at it first. After a restart it fills again by itself.
type known struct {
	mu    sync.Mutex
	ports map[string]place
}

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

func (k *known) add(id string, p place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports[id] = p
}

// name notes that a port was given a name.
func (k *known) name(id, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.ports[id]; ok {
		p.named = name != sdn.FreePortName
		k.ports[id] = p
	}
}

func (k *known) drop(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.ports, id)
}

func (k *known) get(id string) (place, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.ports[id]
	return p, ok
}

// ids are the ports known now.
func (k *known) ids() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.ports))
}

// listed takes over an inventory: its ports are known. A port that was known before the inventory
// began and is not in it is gone, or has lost its mark.
func (k *known) listed(before []string, now map[string]wirePort) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range before {
		if _, ok := now[id]; !ok {
			delete(k.ports, id)
		}
	}
	for id, w := range now {
		p, old := placeOf(w), k.ports[id]
		if old.subport { // it may have become one since it was listed
			p.subport, p.trunkID = true, old.trunkID
		}
		p.pairs = old.pairs
		k.ports[id] = p
	}
}

// own finds out whether a port is this cluster's, asking only if it is not
// known: ErrNotFound if not.
func (b *Neutron) own(ctx context.Context, id string) (place, error) {
	if p, ok := b.known.get(id); ok {
		return p, nil
	}
	w, err := b.readPort(ctx, id, markFields)
	if err != nil {
		return place{}, err
	}
	p, _ := b.known.get(w.ID)
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
	b.known.add(id, placeOf(w))
	return w, nil
}
