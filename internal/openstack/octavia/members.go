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
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ChangeMembers implements sdn.LoadBalancers. Whatever changes, it sends one request that
// writes: a single one for one member, and a batch for more. If members are removed as well, it
// reads the pool first and sends the whole pool.
//
// OVN's driver works at each member of a request (0.25 s each on two cores, with 3.0.0). Its
// requests name all members of the pool, even if only some are added. So a few changes of a
// large OVN pool are made one by one. What would take longer than a request may is done in
// part, and returns a PendingError.
func (b *Octavia) ChangeMembers(ctx context.Context, loadBalancerID, poolID string, add, remove []sdn.Member) error {
	lb, err := b.at(ctx, loadBalancerID)
	if err == nil {
		err = b.changeMembers(ctx, lb, poolID, add, remove)
	}
	b.learnMembers(err, lb, add)
	return err
}

// learnMembers notes that members of other subnets may have been refused. A refusal by OVN or
// amphora, such as of a member of another IP family, is not about the subnet.
func (b *Octavia) learnMembers(err error, lb at, some []sdn.Member) {
	known := lb.features.Provider == providerOVN || isAmphora(lb.features.Provider)
	if !known && slices.ContainsFunc(some, lb.isFar) {
		b.balancers.learn(err, lb.features.Provider, far)
	}
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
		return b.putMembers(ctx, poolID, add, len(add), true)
	case len(add) == 0 && len(remove) == 1 && remove[0].ID != "":
		return b.removeMember(ctx, poolID, remove[0].ID)
	}
	now, err := b.readMembers(ctx, poolID)
	if err != nil {
		return err
	}
	return b.applyChange(ctx, lb, poolID, changeOf(now, add, remove))
}

var errMore = &sdn.PendingError{What: "a part of the members to be changed", Retry: 100 * time.Millisecond, Part: true}

// applyChange makes the change as far as one call may.
func (b *Octavia) applyChange(ctx context.Context, lb at, poolID string, c memberChange) error {
	if c.isNothing() {
		return nil
	}
	todo := c.next(ways{most: b.members(lb.features.Provider), all: lb.features.Provider == providerOVN, single: lb.api.single})
	if todo.put != nil {
		if err := b.putMembers(ctx, poolID, todo.put, todo.worked, false); err != nil {
			return err
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
		m := s.member
		err := b.lb(ctx, http.MethodPut, m.ID, object{"member": object{"name": m.Name}}, nil, "pools", poolID, "members", m.ID)
		return session.IgnoreNotFound(err) // it was removed meanwhile
	case removed:
		return b.removeMember(ctx, poolID, s.member.ID)
	}
	return nil
}

// fits refuses members that the provider has refused before.
func (b *Octavia) fits(lb at, add []sdn.Member) error {
	for _, m := range add {
		if lb.isFar(m) && !lb.features.FarMembers {
			return fmt.Errorf("member %s of another subnet is %w by provider %s", m.IP, sdn.ErrUnsupported, lb.features.Provider)
		}
	}
	return nil
}

// putMembers sends a pool all its members, or additional ones; worked is how many of them the
// provider works at.
func (b *Octavia) putMembers(ctx context.Context, poolID string, all []sdn.Member, worked int, additive bool) error {
	query := url.Values{}
	if additive {
		query.Set("additive_only", "true")
	}
	err := b.Do(ctx, session.Request{
		To: b.dialect.service, Method: http.MethodPut, Path: []string{"lbaas", "pools", poolID, "members"}, Query: query,
		Body: object{"members": newMembers(all)}, Subject: poolID, Members: worked,
	})
	return refusedOf(all, err)
}

// refusedOf adds the refused members to the error: the only one of the request, or those with
// the value that Octavia's answer names.
func refusedOf(asked []sdn.Member, err error) error {
	if !errors.Is(err, sdn.ErrInvalid) {
		return err
	}
	out := sdn.InvalidError{Field: sdn.FieldMember, Err: err}
	if said, ok := errors.AsType[*sdn.InvalidError](err); ok {
		out.Field, out.Value = said.Field, said.Value
	}
	for _, m := range asked {
		if len(asked) == 1 || out.Value != "" && (m.IP == out.Value || m.SubnetID == out.Value) {
			out.Members = append(out.Members, m)
		}
	}
	return &out
}

// addMember adds a member, or renames the existing one.
func (b *Octavia) addMember(ctx context.Context, lb at, poolID string, m sdn.Member) error {
	if m.SubnetID == "" && lb.api.memberSubnets {
		m.SubnetID = lb.subnet
	}
	err := b.lb(ctx, http.MethodPost, poolID, object{"member": newMember(m)}, nil, "pools", poolID, "members")
	if !errors.Is(err, sdn.ErrConflict) {
		return refusedOf([]sdn.Member{m}, err)
	}
	now, err := b.readMembers(ctx, poolID)
	if err != nil {
		return err
	}
	return b.applyChange(ctx, lb, poolID, changeOf(now, []sdn.Member{m}, nil))
}

func (b *Octavia) removeMember(ctx context.Context, poolID, id string) error {
	err := b.lb(ctx, http.MethodDelete, id, nil, nil, "pools", poolID, "members", id)
	switch {
	case errors.Is(err, sdn.ErrNotFound):
		return nil
	case errors.Is(err, sdn.ErrInvalid): // the pool does not exist
		_, again := b.readMembers(ctx, poolID)
		return cmp.Or(again, err)
	}
	return err
}
