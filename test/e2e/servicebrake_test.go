// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/quotas"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// TestServingInErrorStays: the operator puts all load balancers into ERROR while they serve, and the
// quota of load balancers is full. No Service has a gap of over five seconds while nothing can be
// created. When the quota has room again, all are ACTIVE in the end.
func TestServingInErrorStays(t *testing.T) {
	const longest = 5 * time.Second
	long(t)
	f := withServices(t)
	f.change(t, func(document map[string]any) {
		document["services"].(map[string]any)["checkInterval"] = "10s"
	})
	pods := f.servers(t, "web", 2)
	from := f.inPod(f.on(t, "n1", "client"))
	var services []*corev1.Service
	for i := range 4 {
		svc := f.service(t, fmt.Sprint("web-", i), func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "web"} })
		services = append(services, svc)
	}
	for _, svc := range services {
		from.all(t, svc.Spec.ClusterIP, pods)
	}
	p := watchGaps(t, from, services)

	restore := f.fillBalancerQuota(t)
	octaviaSQL(t, "UPDATE load_balancer SET provisioning_status='ERROR' WHERE provisioning_status='ACTIVE'")
	eventually(t, func() error { // one of all load balancers asks for the project
		var list v1.KuryrLoadBalancerList
		if err := f.Client.List(t.Context(), &list); err != nil {
			return err
		}
		for _, klb := range list.Items {
			if c := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady); c != nil && c.Reason == v1.ReasonOverQuota {
				t.Logf("%s/%s: %s", klb.Namespace, klb.Name, c.Message)
				return nil
			}
		}
		return fmt.Errorf("no KuryrLoadBalancer says that the quota is full")
	})
	pause(t.Context(), time.Minute)
	for name, gap := range p.longest() {
		t.Logf("%s: longest gap while nothing can be created: %s", name, gap)
		if gap > longest {
			t.Errorf("%s had a gap of %s while nothing could be created, want %s at most", name, gap, longest)
		}
	}
	if n := octaviaSQL(t, "SELECT COUNT(*) FROM load_balancer WHERE provisioning_status='ERROR'"); strings.TrimSpace(n) == "0" {
		t.Error("no load balancer is in ERROR any more while nothing can be created")
	}

	began := time.Now()
	restore()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // they are replaced one after the other
	defer cancel()
	if err := cluster.Until(ctx, func() error {
		if left := octaviaSQL(t, "SELECT name, provisioning_status FROM load_balancer WHERE provisioning_status <> 'DELETED' AND (provisioning_status <> 'ACTIVE' OR name LIKE '%/trial')"); left != "" {
			return fmt.Errorf("not ACTIVE, or a trial: %s", left)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, svc := range services {
		f.realised(t, svc)
		from.all(t, svc.Spec.ClusterIP, pods)
	}
	t.Logf("all are ACTIVE %s after the quota had room; longest gaps of the whole test: %v", time.Since(began).Round(time.Second), p.longest())
}

// fillBalancerQuota leaves no room for another load balancer, until restore or the test's end.
func (f *fixture) fillBalancerQuota(t testing.TB) (restore func()) {
	t.Helper()
	project := os.Getenv("PROJECT")
	before := must(quotas.Get(t.Context(), f.Octavia, project).Extract())(t)
	used, err := strconv.Atoi(strings.TrimSpace(octaviaSQL(t, fmt.Sprintf(
		"SELECT COUNT(*) FROM load_balancer WHERE provisioning_status <> 'DELETED' AND project_id='%s'", project))))
	if err != nil || used == 0 {
		t.Fatalf("project %s has %d load balancers, %v", project, used, err)
	}
	set := func(n int) {
		if _, err := quotas.Update(context.Background(), f.Octavia, project, quotas.UpdateOpts{Loadbalancer: &n}).Extract(); err != nil {
			t.Error(err)
		}
	}
	restore = func() { set(before.Loadbalancer) }
	t.Cleanup(restore)
	set(used)
	return restore
}

// gaps asks Services once a second, and knows for how long each has not answered at most.
type gaps struct {
	mu   sync.Mutex
	last map[string]time.Time
	most map[string]time.Duration
}

func watchGaps(t testing.TB, from asker, services []*corev1.Service) *gaps {
	t.Helper()
	g := &gaps{last: map[string]time.Time{}, most: map[string]time.Duration{}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, svc := range services {
		g.last[svc.Name] = time.Now()
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if out, err := from(ctx, "curl -sS -m2 --noproxy '*' http://"+svc.Spec.ClusterIP+"/hostname"); err == nil && strings.TrimSpace(out) != "" {
					g.answered(svc.Name, began)
				}
				pause(ctx, time.Until(began.Add(time.Second)))
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	return g
}

// answered notes that a request was answered that was sent at that time.
func (g *gaps) answered(name string, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most[name], g.last[name] = max(g.most[name], at.Sub(g.last[name])), time.Now()
}

// longest returns the longest gap of each Service, also one that lasts.
func (g *gaps) longest() map[string]time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]time.Duration{}
	for name, last := range g.last {
		out[name] = max(g.most[name], time.Since(last)).Round(10 * time.Millisecond)
	}
	return out
}
