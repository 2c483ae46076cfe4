// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// SecurityGroups makes and keeps security groups. A port lets in what any of its
// groups lets in, so one made here takes nothing back that another one gives.
type SecurityGroups interface {
	// EnsureSecurityGroup makes the owner's group hold exactly the rules of want, and returns the
	// group. It finds an existing group by the ID of want if that is set, otherwise by its name and
	// its project, and makes a group only if none exists. It restores a removed mark on the group of that ID and
	// name, so it may be repeated whatever the last call did. It adds missing rules before it
	// removes superfluous ones. It removes these even if the addition fails: after ErrQuota the
	// group lets in no client that want does not.
	EnsureSecurityGroup(ctx context.Context, owner Owner, want SecurityGroup) (SecurityGroup, error)
	// ListSecurityGroups returns all of this cluster, in no order, without their rules.
	ListSecurityGroups(ctx context.Context) ([]SecurityGroup, error)
	// DeleteSecurityGroup removes a group of this cluster. It succeeds if there is none. It returns
	// a PendingError as long as a port has the group, and ErrInvalid if the group has no cluster's
	// mark.
	DeleteSecurityGroup(ctx context.Context, id string) error
}

// SecurityGroup is a security group, wanted or as the backend has it.
type SecurityGroup struct {
	ID        string // of one that is wanted: if it is known
	Owner     Owner  // empty in one that is wanted
	Name      string // name of a new group; a group that a person has renamed is found by its ID only
	ProjectID string // empty: the credential's own
	Rules     []Rule // in any order; nothing else is let in, and nothing out
	Mended    bool   // of one that EnsureSecurityGroup returns: it was there, and not so
}

// Rule lets in packets from a prefix to some ports.
type Rule struct {
	Protocol string // TCP, UDP, SCTP
	From, To int32  // ports, both included; 1 to 65535
	Remote   string // prefix
}

// CanonicalRules returns rules sorted, without duplicates, with canonical prefixes. An invalid rule
// is ErrInvalid.
func CanonicalRules(rules []Rule) ([]Rule, error) {
	out := make([]Rule, len(rules))
	for i, r := range rules {
		p, err := netip.ParsePrefix(r.Remote)
		if err != nil {
			return nil, fmt.Errorf("a rule's prefix: %w: %w", ErrInvalid, err)
		}
		if r.From < 1 || r.To < r.From || r.To > 65535 || !slices.Contains([]string{"TCP", "UDP", "SCTP"}, r.Protocol) {
			return nil, fmt.Errorf("a rule of %s for ports %d to %d: %w", r.Protocol, r.From, r.To, ErrInvalid)
		}
		r.Remote = p.Masked().String()
		out[i] = r
	}
	slices.SortFunc(out, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Remote, b.Remote))
	})
	return slices.Compact(out), nil
}
