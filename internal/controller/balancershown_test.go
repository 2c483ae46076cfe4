// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// replica is an Octavia whose answers come from a database that is behind: it does not show the load
// balancer of Service web until it has caught up.
type replica struct {
	sdn.LoadBalancers

	mu          sync.Mutex
	behind      bool
	hidden      map[string]bool
	made, asked int
}

func (r *replica) CreateLoadBalancer(ctx context.Context, o sdn.Owner, lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	out, err := r.LoadBalancers.CreateLoadBalancer(ctx, o, lb)
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Name == "web" {
		r.made++
		r.hidden[out.ID] = true
	}
	return out, err
}

func (r *replica) hides(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.behind && r.hidden[id] {
		r.asked++
		return true
	}
	return false
}

func (r *replica) LoadBalancer(ctx context.Context, id string) (sdn.LoadBalancer, error) {
	if r.hides(id) {
		return sdn.LoadBalancer{}, sdn.ErrNotFound
	}
	return r.LoadBalancers.LoadBalancer(ctx, id)
}

func (r *replica) ListLoadBalancers(ctx context.Context) (out []sdn.LoadBalancerSummary, err error) {
	all, err := r.LoadBalancers.ListLoadBalancers(ctx)
	for _, s := range all {
		if !r.hides(s.ID) {
			out = append(out, s)
		}
	}
	return out, err
}

// counts returns how many load balancers of web were created, and how often one was not shown.
func (r *replica) counts() (made, asked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made, r.asked
}

func (r *replica) catchUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind = false
}

// A load balancer that Octavia does not show yet is not made again, and nobody is told that its
// address is in use: not by the process that made it, nor by the next one. With its Service it is
// deleted.
func TestALoadBalancerThatIsNotShownYet(t *testing.T) {
	for _, name := range []string{"it is shown", "the controller restarts", "the Service is deleted"} {
		t.Run(name, func(t *testing.T) {
			r := &replica{behind: true, hidden: map[string]bool{}}
			b := newSimBed(t, func(b *simBed) {
				b.around = func(of sdn.LoadBalancers) sdn.LoadBalancers {
					r.LoadBalancers = of
					return r
				}
			})
			b.slow("{balancers: [{kind: loadbalancer, action: create, delay: 1s}]}")
			b.launch(1000)
			svc := b.service("web", by("amphora"))
			b.slice("web", "web-1", "10.1.0.5")
			more := func() {
				_, before := r.counts()
				b.eventually("it is asked for in vain", func() bool { _, asked := r.counts(); return asked > before+3 })
			}
			more()
			switch name {
			case "the controller restarts":
				b.stop()
				b.launch(1000)
				more()
			case "the Service is deleted":
				b.delete(svc)
				more()
			}
			r.catchUp()
			if name == "the Service is deleted" {
				b.eventually("nothing is left", func() bool { return b.balancerOf("web") == nil })
				for _, lb := range b.rows("loadbalancer") {
					if lb["name"] == "default/web" {
						t.Errorf("load balancer %v is left of a deleted Service", lb["id"])
					}
				}
				return
			}
			b.eventually("it is in the cloud", func() bool { return b.atRest("web", 1, []string{"10.1.0.5"}) })
			if made, _ := r.counts(); made != 1 {
				t.Errorf("%d load balancers were made, want 1", made)
			}
			for _, note := range b.notesOn(svc) {
				if strings.Contains(note, "address") {
					t.Errorf("the Service has the Event %q, want none about its address", note)
				}
			}
		})
	}
}
