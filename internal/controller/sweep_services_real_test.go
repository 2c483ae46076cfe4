// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"maps"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// realMend is long enough for what a real Octavia needs for a listener, a pool or a member.
const realMend = 10 * time.Second

// TestServicesSweepReal is a sample of TestServiceWhileWritesMeetTheirFate and of
// TestSourceRangesWhileWritesMeetTheirFate on the Neutron and the Octavia of OS_CLOUD. The
// credential must be admin there. KURYR_SWEEP_POINTS is the number of writes; 20 if it is not set.
// KURYR_PROVIDER is the provider of the load balancers.
//
// Everything that it creates is in projects of its own, and is removed. Before that nothing may be
// left of what the controllers have created.
func TestServicesSweepReal(t *testing.T) {
	points := sweepPoints(t)
	api := newRealAPI(t)
	if api.at["load-balancer"] == "" {
		sdntest.Missing(t, "the cloud of OS_CLOUD has no Octavia: no load balancers to try")
	}
	s := sweepOf(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}}
	s.Node = api.host(t)
	s.Patience = 6 * time.Minute // on busy cores OVN's driver takes up to a minute for a change
	places := make(chan *openstackBalancing, len(s.Clusters))
	for range s.Clusters {
		places <- api.placeOfServices(t, s.Node)
	}
	lend := func(w *crashtest.World, kinds ...string) *openstackBalancing {
		place := <-places
		w.T.Cleanup(func() { places <- place })
		return place.in(w, kinds)
	}
	// Requests to the cloud that were just sent when a process is stopped are what may be left
	// over.
	ofCloud := crashtest.StoppedAfter
	ofCloud.Name, ofCloud.To = "stopped after one to the cloud", crashtest.TheCloud
	each := (points + 1) / 2
	gone, ranges := min(1, each/3), max(min(1, each/2), each*3/10)
	if api.provider(t) == "amphora" {
		ranges = 0 // Octavia enforces source ranges itself: Kuryr makes no security group
	}
	for _, part := range []struct {
		name  string
		each  int // for each fate
		begin func(*crashtest.World) crashtest.Life
	}{
		{"a Service", each - ranges - gone, func(w *crashtest.World) crashtest.Life {
			l := newServiceLife(w, lend(w, marked[:2]...))
			l.later, l.mend = []string{"10.1.0.12", "10.1.0.13"}, realMend // each member takes time
			return l.life()
		}},
		{"its load balancer is gone", gone, func(w *crashtest.World) crashtest.Life {
			l := newGoneLife(w, lend(w, marked[:2]...))
			l.mend = realMend
			return l.life()
		}},
		{"source ranges", ranges, func(w *crashtest.World) crashtest.Life { return newRangesLife(w, lend(w, marked...)).life() }},
	} {
		if s.Sample, s.Begin = part.each, part.begin; part.each == 0 {
			continue
		}
		t.Run(part.name, func(t *testing.T) { s.Run(t, ofCloud, crashtest.StoppedBefore) })
	}
}

// sweepPoints is the number of writes to disturb on a real cloud.
func sweepPoints(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KURYR_SWEEP_POINTS")
	if text == "" {
		return 20
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KURYR_SWEEP_POINTS=%s: want a number from 1 on", text)
	}
	return n
}

// marked are the kinds that a controller creates for Services, and for pods.
var marked = []string{"loadbalancer", "floatingip", "security-group", "port"}

// placeOfServices creates a project for Services, and has it removed. Before the removal it checks
// that the controllers have left nothing there.
func (a *realAPI) placeOfServices(t *testing.T, host string) *openstackBalancing {
	t.Helper()
	b := &openstackBalancing{openstackCloud: a.bare(t), provider: a.provider(t)}
	t.Cleanup(b.remove)
	b.furnish(host)
	b.route()
	before := b.count()
	t.Cleanup(func() {
		after := b.count()
		t.Logf("project %s had %v before, and has %v now", b.project, before, after)
		if !maps.Equal(before, after) {
			t.Errorf("the controllers have left something: there was %v in the cloud, and is %v", before, after)
		}
	})
	return b
}

// in returns a place for one life, which lists these kinds.
func (b *openstackBalancing) in(w *crashtest.World, kinds []string) *openstackBalancing {
	o := *b.openstackCloud
	o.t, o.w, o.clouds, o.kinds = w.T, w, w.T.TempDir(), kinds
	mine := *b
	mine.openstackCloud = &o
	return &mine
}

// provider returns the provider of KURYR_PROVIDER; without it OVN's if the cloud has it, which
// creates a load balancer in seconds.
func (a *realAPI) provider(t *testing.T) string {
	t.Helper()
	if name := os.Getenv("KURYR_PROVIDER"); name != "" {
		return name
	}
	var list struct{ Providers []struct{ Name string } }
	o := &openstackCloud{t: t, api: a, token: a.token}
	if _, err := o.ask(http.MethodGet, "/load-balancer/v2.0/lbaas/providers", nil, &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Providers {
		if p.Name == "ovn" {
			return p.Name
		}
	}
	return ""
}

// count returns the number of resources of each kind that a controller creates. It counts all of
// the project, and those with the cluster's mark in any project.
func (b *openstackBalancing) count() map[string]int {
	b.t.Helper()
	n := map[string]int{}
	everywhere := *b.openstackCloud
	everywhere.project = ""
	for _, kind := range marked {
		for _, o := range []*openstackCloud{b.openstackCloud, &everywhere} {
			rows, err := o.list(kind)
			if err != nil {
				b.t.Fatal(err)
			}
			for _, row := range rows {
				r, err := resource(kind, row)
				switch {
				case o.project != "":
					n[kind]++
				case err == nil && r.Cluster == b.cluster:
					n["marked "+kind]++
				}
			}
		}
	}
	return n
}

// remove removes all resources of the project, whoever created them.
func (b *openstackBalancing) remove() {
	b.removeAll("floatingip")
	b.removeBalancers()
	for _, subnet := range []string{b.vips, b.subnet} {
		if subnet != "" && b.router != "" {
			if err := b.iface("remove", subnet); err != nil {
				b.t.Error(err)
			}
		}
	}
	for _, kind := range []string{"router", "port", "subnet", "network", "security-group"} {
		b.removeAll(kind)
	}
}

// removeBalancers removes the load balancers of the project and waits until they are gone.
func (b *openstackBalancing) removeBalancers() {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		rows, err := b.list("loadbalancer")
		if err == nil && len(rows) == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Errorf("there are %d load balancers left: %v", len(rows), err)
			return
		}
		for _, row := range rows { // a busy one refuses it
			_, _ = b.ask(http.MethodDelete, "/load-balancer/v2.0/lbaas/loadbalancers/"+row["id"].(string)+"?cascade=true", nil, nil)
		}
	}
}
