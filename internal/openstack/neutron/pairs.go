// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Ports of type macvlan are not bound to a host. The port of their virtual machine passes their
// traffic, because it has their addresses in its allowed_address_pairs. That is one list, which
// must be written as a whole. So each change requires the revision that it was computed from, and
// pairs of other users are neither lost nor changed.
//
// Neutron guarantees that for sequential requests. Of two concurrent requests both may pass, and
// the later one restores what the first one removed, or the other way round (seen with Zed:
// properties of a port are written without a check of the revision, and a request that Neutron
// itself repeats after a conflict in its database has forgotten its revision). So a process changes
// a parent's pairs one at a time, and checks afterwards that its change is there. Two processes
// should not share a parent.
//
// A pair is written as a prefix of one address. For a plain address that another port has,
// Neutron's driver for OVN makes that port a virtual one; OVN binds a virtual port to the machine
// that announces the address. The driver compares texts (seen with Zed).

// pairTries bounds how often the pairs are changed anew because the port was
// changed between the look at it and the request.
const pairTries = 5

// pairsOf are the pairs that let a port pass.
func pairsOf(w wirePort) []wirePair {
	out := make([]wirePair, 0, len(w.FixedIPs))
	for _, ip := range w.FixedIPs {
		out = append(out, wirePair{IP: prefix(ip.IP), MAC: strings.ToLower(w.MACAddress)})
	}
	return out
}

// prefix returns the text of an address or a prefix as a prefix. It returns any other text
// unchanged.
func prefix(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(ip, ip.BitLen()).String()
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.String()
	}
	return text
}

// is compares the meaning of the texts: earlier versions wrote plain addresses, and a Neutron may
// rewrite what it got.
func (p wirePair) is(o wirePair) bool {
	return strings.EqualFold(p.MAC, o.MAC) && prefix(p.IP) == prefix(o.IP)
}

func hasPair(list []wirePair, p wirePair) bool { return slices.ContainsFunc(list, p.is) }

// plus is list with those of more that it lacks.
func plus(list, more []wirePair) []wirePair {
	out := slices.Clone(list)
	for _, p := range more {
		if !hasPair(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// minus is list without those of less.
func minus(list, less []wirePair) []wirePair {
	return slices.DeleteFunc(slices.Clone(list), func(p wirePair) bool { return hasPair(less, p) })
}

// carrier reads a port as a parent; ErrNotFound if there is none.
func (b *Neutron) carrier(ctx context.Context, id string, creates bool) (wirePort, error) {
	r := portKind.request(http.MethodGet, id, nil)
	r.Query, r.Creates = url.Values{"fields": {"id", "revision_number", "allowed_address_pairs", "port_security_enabled"}}, creates
	w, err := send[wirePort](ctx, b.Client, portKind, r)
	if err != nil {
		return wirePort{}, fmt.Errorf("reading the address pairs of port %s: %w", id, err)
	}
	return w, nil
}

// carries reports whether a port lets these pairs pass. One without port
// security lets everything pass, and takes no pairs.
func (w wirePort) carries(pairs []wirePair) bool {
	return w.open() || len(minus(pairs, w.Pairs)) == 0
}

func (w wirePort) open() bool { return w.Secure != nil && !*w.Secure }

// roomOnParent finds out, before anything is made, for how many of n ports with these addresses the
// parent has room. It sends a request only if it does not know the parent, or knows it as full;
// full is the reason for fewer than n.
func (b *Neutron) roomOnParent(ctx context.Context, parentID string, addresses, n int) (fit int, full, err error) {
	p := b.parents.of(parentID)
	limit, known, _ := b.parents.full.Fresh(parentID)
	if p.there.Load() && !known {
		return n, nil, nil
	}
	w, err := b.carrier(ctx, parentID, true)
	if errors.Is(err, sdn.ErrNotFound) {
		p.there.Store(false)
		return 0, nil, &sdn.InvalidError{Field: sdn.FieldParentPort, Value: parentID, Err: fmt.Errorf("port %s, whose address pairs they need, does not exist: %w", parentID, sdn.ErrInvalid)}
	}
	if err != nil {
		return 0, nil, err
	}
	p.there.Store(true)
	if fit = max(0, limit-len(w.Pairs)) / addresses; !known || w.open() || fit >= n {
		return n, nil, nil
	}
	return fit, fmt.Errorf("port %s has %d address pairs, and Neutron has refused more than %d (%s): %w",
		parentID, len(w.Pairs), limit, session.Hint(sdn.ErrQuota, session.PairsExhausted), sdn.ErrQuota), nil
}

// admit has a parent let ports pass, in one request if there is room for all. It
// returns how many it took, from the first on.
func (b *Neutron) admit(ctx context.Context, parentID string, ports []wirePort) (int, error) {
	p := b.parents.of(parentID)
	if err := p.lock(ctx, b.Config.RequestTimeout); err != nil {
		return 0, err
	}
	defer p.unlock()
	n := 0
	for size := len(ports); n < len(ports); {
		size = min(size, len(ports)-n)
		var more []wirePair
		for _, w := range ports[n : n+size] {
			more = append(more, pairsOf(w)...)
		}
		have, err := b.changePairs(ctx, parentID, true, func(have []wirePair) []wirePair { return plus(have, more) })
		switch {
		case err == nil:
			n += size
		case errors.Is(err, sdn.ErrQuota) && size > 1:
			size /= 2
		default:
			if errors.Is(err, sdn.ErrQuota) {
				b.parents.full.Keep(parentID, have, b.Config.CacheAge)
			}
			if errors.Is(err, sdn.ErrNotFound) { // not what the call is about
				p.there.Store(false)
				err = &sdn.InvalidError{Field: sdn.FieldParentPort, Value: parentID, Err: fmt.Errorf("port %s, whose address pairs they need, no longer exists: %w", parentID, sdn.ErrInvalid)}
			}
			return n, err
		}
	}
	return n, nil
}

// dismiss takes a port's pairs from its parent. It succeeds if there are none, or
// no parent.
func (b *Neutron) dismiss(ctx context.Context, id string, at place) error {
	if at.pairs == nil {
		w, err := b.readPort(ctx, id, append(slices.Clone(markFields), "mac_address", "fixed_ips"))
		if err != nil {
			return err
		}
		at.pairs = pairsOf(w)
	}
	p := b.parents.of(at.parent)
	if err := p.lock(ctx, b.Config.RequestTimeout); err != nil {
		return err
	}
	defer p.unlock()
	_, err := b.changePairs(ctx, at.parent, false, func(have []wirePair) []wirePair { return minus(have, at.pairs) })
	return session.IgnoreNotFound(err)
}

// changePairs writes what change makes of a port's pairs, until it finds that
// there, and returns how many there were. The parent is locked.
func (b *Neutron) changePairs(ctx context.Context, id string, creates bool, change func([]wirePair) []wirePair) (int, error) {
	for try := 1; ; try++ {
		w, err := b.carrier(ctx, id, creates)
		if err != nil {
			return 0, err
		}
		now := change(w.Pairs)
		if w.open() || slices.Equal(now, w.Pairs) {
			return len(w.Pairs), nil
		}
		r := portKind.request(http.MethodPut, id, object{"allowed_address_pairs": now})
		r.Creates, r.Header = creates, session.Unchanged(w.Revision)
		err = b.Do(ctx, r)
		if err == nil && try < pairTries {
			continue // it is looked at once more
		}
		if err == nil {
			err = fmt.Errorf("another user reverts them: %w", sdn.ErrConflict)
		}
		if !errors.Is(err, sdn.ErrConflict) || try == pairTries {
			return len(w.Pairs), fmt.Errorf("changing the address pairs of port %s: %w", id, err)
		}
	}
}
