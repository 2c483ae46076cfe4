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

// Ports of type macvlan are bound nowhere: the port of the virtual machine that
// carries them lets their traffic pass, because it has their addresses among its
// allowed_address_pairs. That is one list, which has to be written as a whole, so
// each change insists on the revision that it was made from: somebody else's
// pairs are neither lost nor touched.
//
// Neutron keeps that promise between requests that follow each other. Of two that
// it works on at once both may pass, and the later one brings back what the first
// has removed, or the other way round (seen with Zed: what belongs to a port is
// written without a look at the revision, and a request that Neutron itself tries
// again after a conflict in its database has forgotten what it insisted on). So
// one process changes a parent's pairs one at a time, and looks afterwards whether
// its change is there. Two processes should not share a parent.
//
// A pair is written as a prefix of one address. Of a plain address that another port
// has, Neutron's driver for OVN makes that port a virtual one, which OVN binds to
// whichever machine announces the address; it finds it by the text (seen with Zed).

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

// prefix is an address, or a prefix, as the text of a prefix. What is neither stays
// as it is.
func prefix(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(ip, ip.BitLen()).String()
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.String()
	}
	return text
}

// is compares what the texts mean: earlier versions have written plain addresses,
// and a Neutron may say in its own words what it was given.
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

// carrier reads a port as the parent of others: ErrNotFound if there is none.
func (b *Neutron) carrier(ctx context.Context, id string, creates bool) (wirePort, error) {
	var body portBody
	err := b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"ports", id}, Out: &body, Subject: "PortNotFound", Creates: creates,
		Query: url.Values{"fields": {"id", "revision_number", "allowed_address_pairs", "port_security_enabled"}},
	})
	if err != nil {
		return wirePort{}, fmt.Errorf("reading the address pairs of port %s: %w", id, err)
	}
	return body.Port, nil
}

// carries reports whether a port lets these pairs pass. One without port
// security lets everything pass, and takes no pairs.
func (w wirePort) carries(pairs []wirePair) bool {
	return w.open() || len(minus(pairs, w.Pairs)) == 0
}

func (w wirePort) open() bool { return w.Secure != nil && !*w.Secure }

// roomOnParent finds out, before anything is made, for how many of n ports with
// these addresses each the parent has room. It asks only if it has not seen the
// parent, or has seen it full; full is why there are fewer than n.
func (b *Neutron) roomOnParent(ctx context.Context, parentID string, addresses, n int) (fit int, full, err error) {
	p := b.parents.of(parentID)
	limit, known := p.limit(b.config.CacheAge)
	if p.there.Load() && !known {
		return n, nil, nil
	}
	w, err := b.carrier(ctx, parentID, true)
	if errors.Is(err, sdn.ErrNotFound) {
		p.there.Store(false)
		return 0, nil, fmt.Errorf("port %s, which is to carry them, does not exist: %w", parentID, sdn.ErrInvalid)
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
	if err := p.lock(ctx, b.config.RequestTimeout); err != nil {
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
				p.filled(have)
			}
			if errors.Is(err, sdn.ErrNotFound) { // not what the call is about
				p.there.Store(false)
				err = fmt.Errorf("port %s, which is to carry them, has gone: %w", parentID, sdn.ErrInvalid)
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
	if err := p.lock(ctx, b.config.RequestTimeout); err != nil {
		return err
	}
	defer p.unlock()
	_, err := b.changePairs(ctx, at.parent, false, func(have []wirePair) []wirePair { return minus(have, at.pairs) })
	if errors.Is(err, sdn.ErrNotFound) {
		return nil
	}
	return err
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
		err = b.Do(ctx, session.Request{
			Method: http.MethodPut, Path: []string{"ports", id}, Subject: "PortNotFound", Creates: creates, Header: session.Unchanged(w.Revision),
			Body: map[string]any{"port": map[string]any{"allowed_address_pairs": now}},
		})
		if err == nil && try < pairTries {
			continue // it is looked at once more
		}
		if err == nil {
			err = fmt.Errorf("somebody else undoes them: %w", sdn.ErrConflict)
		}
		if !errors.Is(err, sdn.ErrConflict) || try == pairTries {
			return len(w.Pairs), fmt.Errorf("changing the address pairs of port %s: %w", id, err)
		}
	}
}
