// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ChangeMembers implements sdn.LoadBalancers. Whatever changes, it is one request
// that writes: a single one for one member, and for more one that puts them
// together; the whole pool if some have to go, which then is read first.
//
// OVN's driver works at each member of a pool that it is told of, and it is told of
// all even if only some are added (0.25 s each on two cores, with 3.0.0): there a
// few changes of a large pool are made one by one. What would take longer than a
// request may is done in part, and is a PendingError.
func (b *Octavia) ChangeMembers(ctx context.Context, poolID string, add, remove []sdn.Member) error {
	lb, err := b.above(ctx, "pools", poolID)
	if err == nil {
		err = b.changeMembers(ctx, lb, poolID, add, remove)
	}
	if errors.Is(err, sdn.ErrUnsupported) {
		b.learnMembers(lb, add)
	}
	if err != nil {
		return fmt.Errorf("adding %d members to pool %s and removing %d: %w", len(add), poolID, len(remove), err)
	}
	return nil
}

func (b *Octavia) changeMembers(ctx context.Context, lb at, poolID string, add, remove []sdn.Member) error {
	if err := b.fits(lb, add); err != nil {
		return err
	}
	switch {
	case len(add)+len(remove) == 0:
		return nil
	case lb.api.single:
	case len(remove) == 0 && len(add) == 1:
		return b.addMember(ctx, lb, poolID, add[0])
	case len(remove) == 0 && len(add) <= b.members(lb.features.Provider) && lb.api.has(withAdditive) && lb.features.Provider != providerOVN:
		return b.gone(poolID, b.putMembers(ctx, lb, poolID, add, len(add), true))
	case len(add) == 0 && len(remove) == 1 && remove[0].ID != "":
		return b.removeMember(ctx, poolID, remove[0].ID)
	}
	now, err := b.readMembers(ctx, poolID)
	if err != nil {
		return b.gone(poolID, err)
	}
	return b.applyChange(ctx, lb, poolID, changeOf(now, add, remove))
}

var errMore = &sdn.PendingError{What: "a part of the members to be changed", Retry: 100 * time.Millisecond, Part: true}

// applyChange makes the change as far as that goes in one call.
func (b *Octavia) applyChange(ctx context.Context, lb at, poolID string, c memberChange) error {
	if c.isNothing() {
		return nil
	}
	todo := c.next(ways{most: b.members(lb.features.Provider), all: lb.features.Provider == providerOVN, single: lb.api.single})
	if todo.put != nil {
		if err := b.putMembers(ctx, lb, poolID, todo.put, todo.worked, false); err != nil {
			return b.gone(poolID, err)
		}
	}
	for _, s := range todo.single {
		if err := b.applySingle(ctx, lb, poolID, s); err != nil {
			return err
		}
	}
	if todo.more {
		return errMore
	}
	return nil
}

func (b *Octavia) applySingle(ctx context.Context, lb at, poolID string, s single) error {
	switch s.how {
	case added:
		return b.addMember(ctx, lb, poolID, s.member)
	case renamed:
		return b.renameMember(ctx, poolID, s.member)
	case removed:
		return b.removeMember(ctx, poolID, s.member.ID)
	}
	return nil
}

func (b *Octavia) renameMember(ctx context.Context, poolID string, m sdn.Member) error {
	err := b.lb(ctx, http.MethodPut, m.ID, object{"member": object{"name": m.Name}}, nil, "pools", poolID, "members", m.ID)
	if errors.Is(err, sdn.ErrNotFound) { // it has gone meanwhile
		return nil
	}
	return err
}

// fits refuses members that the provider has refused before.
func (b *Octavia) fits(lb at, add []sdn.Member) error {
	for _, m := range add {
		if lb.isFar(m) && !lb.features.FarMembers {
			return fmt.Errorf("member %s of another subnet: %w %s", m.IP, sdn.ErrUnsupported, lb.features.Provider)
		}
	}
	return nil
}

// fillPool gives a pool that has none its members, and returns what they were asked
// to be: a batch is not answered with what became of it.
func (b *Octavia) fillPool(ctx context.Context, lb at, poolID string, members []sdn.Member) ([]sdn.Member, error) {
	if len(members) == 0 {
		return nil, nil
	}
	if err := b.fits(lb, members); err != nil {
		return nil, err
	}
	if lb.api.single {
		return b.addAll(ctx, lb, poolID, members)
	}
	some := members[:min(len(members), b.members(lb.features.Provider))]
	if err := b.putMembers(ctx, lb, poolID, some, len(some), false); err != nil {
		return nil, fmt.Errorf("giving pool %s %d members: %w", poolID, len(some), err)
	}
	if len(some) < len(members) {
		return slices.Clone(some), errMore
	}
	return slices.Clone(some), nil
}

// addAll adds members one by one, and returns those that were.
func (b *Octavia) addAll(ctx context.Context, lb at, poolID string, members []sdn.Member) ([]sdn.Member, error) {
	for i, m := range members {
		if err := b.addMember(ctx, lb, poolID, m); err != nil {
			return slices.Clone(members[:i]), err
		}
	}
	return slices.Clone(members), nil
}

// putMembers tells a pool its members, or some more; worked is at how many of them that
// takes time.
func (b *Octavia) putMembers(ctx context.Context, lb at, poolID string, all []sdn.Member, worked int, additive bool) error {
	query := url.Values{}
	if additive {
		query.Set("additive_only", "true")
	}
	var took time.Duration
	err := b.Do(ctx, session.Request{
		To: b.dialect.service, Method: http.MethodPut, Path: []string{"lbaas", "pools", poolID, "members"}, Query: query,
		Body: object{"members": newMembers(all)}, Subject: poolID, Members: worked, Took: &took,
	})
	b.balancers.took(lb.features.Provider, worked, took, err)
	return err
}

// addMember adds one, or gives the one that is there its name.
func (b *Octavia) addMember(ctx context.Context, lb at, poolID string, m sdn.Member) error {
	if m.SubnetID == "" && lb.api.memberSubnets {
		w, err := b.readBalancer(ctx, lb.id)
		if err != nil {
			return err
		}
		m.SubnetID = w.VIPSubnetID
	}
	err := b.lb(ctx, http.MethodPost, poolID, object{"member": newMember(m)}, nil, "pools", poolID, "members")
	if !errors.Is(err, sdn.ErrConflict) {
		return b.gone(poolID, err)
	}
	now, err := b.readMembers(ctx, poolID)
	if err != nil {
		return b.gone(poolID, err)
	}
	return b.applyChange(ctx, lb, poolID, changeOf(now, []sdn.Member{m}, nil))
}

func (b *Octavia) removeMember(ctx context.Context, poolID, id string) error {
	err := b.lb(ctx, http.MethodDelete, id, nil, nil, "pools", poolID, "members", id)
	switch {
	case errors.Is(err, sdn.ErrNotFound):
		return nil
	case errors.Is(err, sdn.ErrInvalid): // it is the pool that is not there
		_, again := b.readMembers(ctx, poolID)
		return b.gone(poolID, session.First(again, err))
	}
	return err
}
