// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

const (
	vips4, vips6, pods, outside = "services-4", "services-6", "pods", "outside"
	outsideNet                  = "outside-net"
)

var owner = sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "shop", Name: "web"}

// cloud returns a cloud with the subnets of the tests.
func cloud() *memory.Cloud {
	subnet := func(id, network, prefix string) memory.Subnet {
		return memory.Subnet{ID: id, NetworkID: network, Prefix: netip.MustParsePrefix(prefix), MTU: 1442}
	}
	ext := subnet(outside, outsideNet, "203.0.113.0/24")
	ext.External = true
	c := memory.New(subnet(vips4, "n", "10.2.0.0/16"), subnet(vips6, "n", "fd00:2::/64"), subnet(pods, "n", "10.1.0.0/16"), ext)
	return c
}

// world is a KuryrLoadBalancer and the cloud to which it is applied.
type world struct {
	t     testing.TB
	cloud *memory.Cloud
	sdn   *memory.Backend
	klb   *v1.KuryrLoadBalancer
	did   []string

	attempts balancer.Attempts
	now      time.Time
}

func newWorld(t testing.TB) *world {
	c := cloud()
	return &world{now: time.Unix(1800000000, 0), t: t, cloud: c, sdn: c.Backend("cluster"), klb: &v1.KuryrLoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       v1.KuryrLoadBalancerSpec{VIPs: []v1.VIPAddress{{IP: "10.2.0.10", SubnetID: vips4}}},
	}}
}

func (w *world) trees(ctx context.Context) ([]sdn.LoadBalancer, error) {
	list, err := w.sdn.ListLoadBalancers(ctx)
	if err != nil {
		return nil, err
	}
	var all []sdn.LoadBalancer
	for _, s := range list {
		if s.Owner != owner {
			continue
		}
		lb, err := w.sdn.LoadBalancer(ctx, s.ID)
		if errors.Is(err, sdn.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, lb)
	}
	return all, nil
}

// plan reads the cloud and returns what is wanted and what to do.
func (w *world) plan() (want, have []sdn.LoadBalancer, a balancer.Actions, err error) {
	ctx := w.t.Context()
	have, err = w.trees(ctx)
	if err != nil {
		return nil, nil, a, err
	}
	f, err := w.sdn.Features(ctx, balancer.Provider(w.klb, have, nil))
	if err != nil {
		return nil, nil, a, err
	}
	a = balancer.Next(balancer.Input{LoadBalancer: w.klb, Trees: have, Features: f, Attempts: w.attempts, Now: w.now, Pause: pause})
	w.attempts = a.Attempts
	return a.Want, have, a, nil
}

func (w *world) do(step balancer.Step) error {
	ctx := w.t.Context()
	w.did = append(w.did, step.String())
	var err error
	switch s := step.(type) {
	case balancer.CreateLoadBalancer:
		_, err = w.sdn.CreateLoadBalancer(ctx, owner, s.LoadBalancer)
	case balancer.DeleteLoadBalancer:
		err = w.sdn.DeleteLoadBalancer(ctx, s.ID)
	case balancer.MarkLoadBalancer:
		err = w.sdn.MarkLoadBalancer(ctx, s.ID, owner)
	case balancer.FailOver:
		err = w.sdn.FailOver(ctx, s.ID)
	case balancer.CreateListener:
		_, err = w.sdn.CreateListener(ctx, s.LoadBalancerID, s.Listener)
	case balancer.UpdateListener:
		err = w.sdn.UpdateListener(ctx, s.LoadBalancerID, s.ID, s.Listener)
	case balancer.DeleteListener:
		err = w.sdn.DeleteListener(ctx, s.LoadBalancerID, s.ID)
	case balancer.CreatePool:
		_, err = w.sdn.CreatePool(ctx, s.LoadBalancerID, s.ListenerID, s.Pool)
	case balancer.DeletePool:
		err = w.sdn.DeletePool(ctx, s.LoadBalancerID, s.ID)
	case balancer.RenewMembers:
		err = w.sdn.ChangeMembers(ctx, s.LoadBalancerID, s.PoolID, s.Members, nil)
	case balancer.UpdatePool:
		err = w.sdn.UpdatePool(ctx, s.LoadBalancerID, s.ID, s.Pool)
	case balancer.ChangeMembers:
		err = w.sdn.ChangeMembers(ctx, s.LoadBalancerID, s.PoolID, s.Add, s.Remove)
	default:
		w.t.Fatalf("unknown step %T", step)
	}
	return err
}

// atRest reports whether nothing is to be done and nothing to be waited for.
func atRest(p *balancer.Actions) bool {
	return len(p.Steps)+len(p.Last)+len(p.Busy)+len(p.Unfinished)+len(p.Broken) == 0
}

// settle carries out plans until nothing is to be done.
func (w *world) settle() {
	w.t.Helper()
	for range 200 {
		_, _, p, err := w.plan()
		if err != nil {
			continue
		}
		if atRest(&p) {
			return
		}
		w.round(&p)
	}
	_, have, p, err := w.plan()
	w.t.Fatalf("it does not come to rest: %v, %+v, the cloud has %+v", err, p, have)
}

// pause is the first pause between attempts to mend what serves.
const pause = 30 * time.Second

// round carries out one plan as the comments of Actions say. If something has to be mended later,
// the time moves on to then.
func (w *world) round(p *balancer.Actions) {
	steps := slices.Clone(p.Steps)
	for i := range p.Remedies {
		steps = append(steps, p.Remedies[i].Step)
	}
	if len(steps)+len(p.Busy)+len(p.Unfinished)+len(p.Broken) == 0 {
		steps = p.Last
	}
	if len(steps) == 0 {
		w.now = w.now.Add(cmp.Or(p.Wake, p.Reread))
	}
	for i, s := range steps {
		err := w.do(s)
		if r := i - len(p.Steps); r >= 0 && r < len(p.Remedies) && !errors.As(err, new(*sdn.PendingError)) {
			w.attempts.Tried(&p.Remedies[r], w.now, "")
		} else if err == nil {
			w.attempts.Removed(s, w.now, time.Second, "")
		}
		if err != nil {
			return
		}
	}
}

func member(i int) v1.MemberSpec {
	return v1.MemberSpec{Name: fmt.Sprintf("shop/web-%d", i), IP: fmt.Sprintf("10.1.0.%d", i), Port: 8080, SubnetID: pods}
}

func port(protocol string, n int32, members ...int) v1.ListenerSpec {
	l := v1.ListenerSpec{Protocol: protocol, Port: n}
	for _, i := range members {
		l.Members = append(l.Members, member(i))
	}
	return l
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func monitor(kind string, delay int32) *v1.MonitorSpec {
	return &v1.MonitorSpec{Type: kind, Delay: delay, Timeout: delay - 1, MaxRetries: 1, MaxRetriesDown: 3}
}

func contains(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}
