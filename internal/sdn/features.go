// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// CheckListener returns ErrUnsupported, naming the field, if the provider cannot do what l or its
// pool asks for. A setting without effect is no error: see Timeouts and ConnectionLimit.
func (f Features) CheckListener(l Listener) error {
	switch {
	case !slices.Contains(f.Protocols, l.Protocol):
		return f.cannot("listeners of protocol "+l.Protocol, "protocols", strings.Join(f.Protocols, ", "))
	case len(l.SourceRanges) > 0 && !f.SourceRanges:
		return f.cannot("source ranges of listeners", "", "")
	case l.Pool != nil:
		p := *l.Pool
		p.Protocol = cmp.Or(p.Protocol, l.Protocol)
		return f.CheckPool(p)
	}
	return nil
}

// Balances reports whether a pool may ask for an algorithm.
func (f Features) Balances(algorithm string) bool {
	return algorithm == f.Algorithm || slices.Contains(f.Algorithms, algorithm)
}

// TimesAffinity reports whether a pool of this protocol accepts a timeout of affinity. Octavia
// accepts none for TCP with any provider.
func (f Features) TimesAffinity(protocol string) bool {
	return f.AffinityTimeout && (protocol == "UDP" || protocol == "SCTP")
}

// CheckPool is CheckListener for a pool. The pool's protocol must be set.
func (f Features) CheckPool(p Pool) error {
	switch {
	case strings.HasPrefix(p.Protocol, "PROXY") && !f.ProxyProtocol:
		return f.cannot("pools of protocol "+p.Protocol, "", "")
	case p.AffinitySeconds != nil && !f.Affinity:
		return f.cannot("session affinity", "", "")
	case p.AffinitySeconds != nil && *p.AffinitySeconds != 0 && !f.TimesAffinity(p.Protocol):
		return f.cannot("a timeout of session affinity with "+p.Protocol, "", "")
	case p.Algorithm != "" && !f.Balances(p.Algorithm):
		return f.cannot("balancing by "+p.Algorithm, "algorithms", strings.Join(f.Algorithms, ", "))
	case p.Monitor != nil && !slices.Contains(f.Monitors, p.Monitor.Type):
		return f.cannot("health monitors of type "+p.Monitor.Type, "types", strings.Join(f.Monitors, ", "))
	}
	return nil
}

func (f Features) cannot(what, kind, known string) error {
	if known != "" {
		what += " (its " + kind + ": " + known + ")"
	}
	return fmt.Errorf("%s: %w by provider %s", what, ErrUnsupported, f.Provider)
}
