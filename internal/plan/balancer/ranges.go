// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ranges is the field of a Service that has its source ranges.
const ranges = "spec.loadBalancerSourceRanges"

// nowhere is a source range that no client is in, everybody one that all are in.
var (
	nowhere   = map[string]string{"ipv4": "0.0.0.0/32", "ipv6": "::/128"}
	everybody = map[string]string{"ipv4": "0.0.0.0/0", "ipv6": "::/0"}
)

// Wider reports whether the source ranges have admit clients that want does not; no ranges
// admit every client. A range that cannot be parsed counts as wider. Wanted ranges that are
// still missing keep clients out, which is no danger.
func Wider(have, want []string) bool {
	switch {
	case len(want) == 0:
		return false
	case len(have) == 0: // of a load balancer, whose ranges are of one family
		return !slices.ContainsFunc(want, isEverybody)
	}
	return slices.ContainsFunc(have, func(r string) bool {
		return r != nowhere["ipv4"] && r != nowhere["ipv6"] && !within(r, want)
	})
}

// isEverybody reports whether a range holds all addresses of a family.
func isEverybody(r string) bool {
	p, err := netip.ParsePrefix(r)
	return err == nil && p.Bits() == 0
}

// limited reports whether source ranges keep any client of a family out.
func limited(ranges []string, of string) bool {
	return len(ranges) > 0 && !slices.ContainsFunc(ranges, func(r string) bool { return isEverybody(r) && family(r) == of })
}

// within reports whether one of all holds a prefix.
func within(prefix string, all []string) bool {
	in, err := netip.ParsePrefix(prefix)
	return err == nil && slices.ContainsFunc(all, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Bits() <= in.Bits() && p.Contains(in.Addr())
	})
}

// AdmitsOthers reports whether the load balancer at the first VIP still admits clients outside
// the wanted source ranges. A port that is not wanted any more counts, too, but not where every
// client may come in.
func AdmitsOthers(want, have []sdn.LoadBalancer, keep []string) bool {
	if len(want) == 0 {
		return false
	}
	lb := Serving(want[0].VIP, have, keep)
	return lb != nil && slices.ContainsFunc(lb.Listeners, func(h sdn.Listener) bool {
		return Wider(h.SourceRanges, rangesOf(want[0].Listeners))
	})
}

// rangesOf returns the source ranges of the ports of one load balancer, which are the same for
// all of them. Without ports it returns ranges that admit no client.
func rangesOf(want []sdn.Listener) []string {
	if len(want) == 0 {
		return []string{nowhere["ipv4"], nowhere["ipv6"]}
	}
	return want[0].SourceRanges
}

// NeedsRangeGroup reports whether a security group on the ports of the members has to keep the
// source ranges, or to admit every client. That is so if the KuryrLoadBalancer asks for it, the
// provider does not keep the ranges, and members see the client's address.
func NeedsRangeGroup(klb *v1.KuryrLoadBalancer, f sdn.Features) bool {
	return klb.Spec.SourceRangesAtMembers && !f.Unsure && !f.SourceRanges && f.KeepsClientAddress
}

// Open reports whether the source ranges admit every client of the floating IP, which is of the
// first VIP's family. The security group keeps no client out then: it only opens ports that are
// closed otherwise. A member that lacks it is closed, which withholds no floating IP.
func Open(klb *v1.KuryrLoadBalancer) bool {
	return len(klb.Spec.VIPs) == 0 || !limited(klb.Spec.SourceRanges, family(klb.Spec.VIPs[0].IP))
}

// WithoutRanges returns klb without its source ranges, which a security group keeps. The rest
// is for the load balancers. klb is not changed.
func WithoutRanges(klb *v1.KuryrLoadBalancer) *v1.KuryrLoadBalancer {
	rest := *klb
	rest.Spec.SourceRanges = nil
	return &rest
}

// mostRules is the most rules of a security group: ten times Neutron's usual quota. To create
// them takes a minute or two.
const mostRules = 1000

// RangeGroupRules returns the rules of the security group of a KuryrLoadBalancer. They admit
// its source ranges, or every client, at the ports of its members. They are sorted and unique,
// and at most mostRules. If that is not enough, it returns the problem.
func RangeGroupRules(klb *v1.KuryrLoadBalancer) (rules []sdn.Rule, missing []Problem) {
	from := klb.Spec.SourceRanges
	if len(from) == 0 {
		for _, v := range klb.Spec.VIPs {
			from = append(from, everybody[family(v.IP)])
		}
	}
	ports := map[sdn.Rule]bool{} // without ranges
	for _, l := range klb.Spec.Listeners {
		for _, m := range l.Members {
			ports[sdn.Rule{Protocol: l.Protocol, From: m.Port, To: m.Port}] = true
		}
	}
	for rule := range ports {
		for _, rule.Remote = range from {
			rules = append(rules, rule)
		}
	}
	slices.SortFunc(rules, func(a, b sdn.Rule) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.From, b.From), cmp.Compare(a.Remote, b.Remote))
	})
	if rules = slices.Compact(rules); len(rules) <= mostRules {
		return rules, nil
	}
	next := rules[mostRules]
	return rules[:mostRules], []Problem{{ranges, ReasonTooManyRules, fmt.Sprintf("the source ranges need %d rules of a security group, which gets only the first %d. From range %s at endpoint port %d on, "+
		"clients cannot connect. Use fewer or larger ranges, or fewer ports", len(rules), mostRules, next.Remote, next.From)}}
}

// part is an object below a load balancer that was read.
type part struct {
	kind, id, name string // kind is listener, pool or member
	provisioning   sdn.Provisioning
	disabled       bool
	pool           string // of a member
}

// parts returns the objects below a load balancer, each after what it is below.
func parts(lb *sdn.LoadBalancer) (all []part) {
	for _, l := range lb.Listeners {
		all = append(all, part{"listener", l.ID, l.Name, l.Provisioning, l.Disabled, ""})
		if l.Pool == nil {
			continue
		}
		all = append(all, part{"pool", l.Pool.ID, l.Pool.Name, l.Pool.Provisioning, l.Pool.Disabled, ""})
		for _, m := range l.Pool.Members {
			all = append(all, part{"member", m.ID, cmp.Or(m.Name, m.IP), m.Provisioning, m.Disabled, l.Pool.ID})
		}
	}
	return all
}

// noteDisabled notes the objects of a load balancer that a person has disabled in the cloud, each with the
// command that enables it again, and reports whether more than members are. Kuryr never disables one, and
// leaves it so: an operator may have a reason.
func (r *Report) noteDisabled(lb *sdn.LoadBalancer) bool {
	var all []string
	if lb.Disabled {
		all = append(all, fmt.Sprintf("load balancer %[1]s (openstack loadbalancer set --enable %[1]s)", lb.ID))
	}
	for _, p := range parts(lb) {
		switch what := p.kind + " " + cmp.Or(p.name, p.id); {
		case !p.disabled:
		case p.pool != "":
			r.DisabledMembers = append(r.DisabledMembers, fmt.Sprintf("%s (openstack loadbalancer member set --enable --weight 1 %s %s)", what, p.pool, p.id))
		default:
			all = append(all, fmt.Sprintf("%s (openstack loadbalancer %s set --enable %s)", what, p.kind, p.id))
		}
	}
	r.Disabled = append(r.Disabled, all...)
	return len(all) > 0
}

// unfinished is the prefix of the keys of objects that are being changed below a load balancer, see
// Unfinished. A key has the load balancer, the object and its state.
const unfinished = "unfinished "

// Unfinished returns the load balancers that accept changes while the provider is still at work on
// the objects below them, and when to read them again. OVN's provider is so for seconds. With any
// provider, a load balancer and its objects are not read at one moment. A change that meets another one
// under way may leave the load balancer PENDING_UPDATE for ever, or a member in OVN that Octavia has
// not. If none of the objects changes for a pause, who was at work has died: they are to be repaired,
// and are not waited for any more, whatever is changed beside them.
func (m *Attempts) Unfinished(have []sdn.LoadBalancer, now time.Time, pause time.Duration) (ids []string, again time.Duration) {
	all := map[string]bool{}
	for i := range have {
		lb, begins := &have[i], false
		var pending []string
		for _, part := range parts(lb) {
			if key := fmt.Sprint(unfinished, lb.ID, " ", part.id, " ", part.provisioning); busy(part.provisioning) {
				pending, all[key], begins = append(pending, key), true, begins || (*m)[key].Times == 0
			}
		}
		if lb.Provisioning != sdn.ProvisioningActive {
			continue
		}
		for key := range *m { // one of those that were waited for is done
			begins = begins || strings.HasPrefix(key, unfinished+lb.ID+" ") && !all[key] && (*m)[key].Times == 1
		}
		for _, key := range pending {
			if begins && (*m)[key].Times < 2 {
				delete(*m, key)
				m.Note(key, now, Pauses{pause, pause}, "")
			}
			if waits := m.Waits(key, now); waits > 0 {
				ids, again = append(ids, lb.ID), min(cmp.Or(again, 5*time.Second), max(pause-waits, time.Second/2))
			} else {
				m.Note(key, now, Pauses{}, "") // who was at work has died
			}
		}
	}
	m.keep(unfinished, all)
	return slices.Compact(ids), again
}
