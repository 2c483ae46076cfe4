// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Whatever somebody deletes of a Service in Octavia is told and there again, the
// load balancer at the same address, and the Service answers.
func TestServiceRepaired(t *testing.T) {
	f := withServices(t)
	f.change(t, func(document map[string]any) {
		document["services"].(map[string]any)["checkInterval"] = "10s"
	})
	pods := f.servers(t, "web", 2)
	from := f.inPod(f.on(t, "n1", "client"))
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	public := f.ingress(t, svc)
	member := at(pods, 8080)[0]
	for _, c := range []struct {
		what   string
		drift  []string // one of these is in the Event
		remove func(*v1.KuryrLoadBalancer) error
		id     func(*v1.KuryrLoadBalancer) string // of what was deleted, in the status
	}{
		{"member", []string{"change members of pool"}, func(klb *v1.KuryrLoadBalancer) error {
			return pools.DeleteMember(t.Context(), f.Octavia, poolOf(klb), f.members(t, svc, "TCP:80", at(pods, 8080))[member]).ExtractErr()
		}, func(klb *v1.KuryrLoadBalancer) string { return memberOf(klb, member) }},
		// OVN's provider deletes the members first, one by one. Octavia shows the load balancer as ACTIVE in between.
		{"pool", []string{"create pool", "change members of pool"}, func(klb *v1.KuryrLoadBalancer) error {
			return pools.Delete(t.Context(), f.Octavia, poolOf(klb)).ExtractErr()
		}, poolOf},
		{"listener", []string{"create listener"}, func(klb *v1.KuryrLoadBalancer) error {
			return listeners.Delete(t.Context(), f.Octavia, listenerOf(klb)).ExtractErr()
		}, listenerOf},
		{"load balancer", []string{"create load balancer", "associate floating IP"}, func(klb *v1.KuryrLoadBalancer) error {
			return loadbalancers.Delete(t.Context(), f.Octavia, klb.Status.LoadBalancers[0].ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr()
		}, func(klb *v1.KuryrLoadBalancer) string { return klb.Status.LoadBalancers[0].ID }},
	} {
		t.Run(c.what, func(t *testing.T) {
			from.all(t, svc.Spec.ClusterIP, pods)
			// What is deleted during a repair belongs to that one, and has no Event of its own.
			eventually(t, func() error {
				now := f.realised(t, svc)
				if !meta.IsStatusConditionTrue(now.Status.Conditions, v1.ConditionInSync) || !meta.IsStatusConditionFalse(now.Status.Conditions, v1.ConditionProgressing) {
					return fmt.Errorf("the repair before has not ended: %+v", now.Status.Conditions)
				}
				return nil
			})
			before := f.realised(t, svc)
			if err := c.remove(before); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error {
				now := &v1.KuryrLoadBalancer{}
				if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(svc), now); err != nil {
					return err
				}
				if len(now.Status.LoadBalancers) == 0 || c.id(now) == "" || c.id(now) == c.id(before) {
					return fmt.Errorf("no new %s in the status", c.what)
				}
				return nil
			})
			f.realised(t, svc)
			f.members(t, svc, "TCP:80", at(pods, 8080))
			f.members(t, svc, "UDP:80", at(pods, 8081))
			from.all(t, svc.Spec.ClusterIP, pods)
			f.event(t, svc.Name, c.drift...)
			if now := f.ingress(t, svc); now != public {
				t.Errorf("floating IP %s has become %s", public, now)
			}
			asker(outside).all(t, public, pods)
		})
	}
}

// While the controller is away Services come, change and go, and what one had in
// Octavia is gone as well: it makes up for all of it.
func TestServicesWhileControllerIsAway(t *testing.T) {
	f := onBed(t)
	f.needsOctavia(t)
	f.leavesNoServices(t)
	pods := f.servers(t, "changed", 2)
	changed, gone := f.service(t, "changed"), f.service(t, "gone")
	from := f.inPod(f.on(t, "n1", "client"))
	from.all(t, changed.Spec.ClusterIP, pods)
	lost := f.realised(t, gone).Status.LoadBalancers[0].ID
	kept := f.realised(t, changed).Status.LoadBalancers[0].ID

	t.Cleanup(func() { f.scaleController(t, 1) })
	f.scaleController(t, 0)
	if err := f.Client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if err := loadbalancers.Delete(t.Context(), f.Octavia, lost, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	f.becomes(t, changed, func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
	made := f.service(t, "made", func(s *corev1.ServiceSpec) { s.Selector = changed.Spec.Selector })
	f.scaleController(t, 1)

	from.all(t, made.Spec.ClusterIP, pods)
	eventually(t, func() error {
		all, err := f.Listeners(t.Context(), kept)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("load balancer %s listens on %v, want TCP:80 alone", kept, sorted(all))
		}
		return err
	})
	from.all(t, changed.Spec.ClusterIP, pods)
	eventually(t, func() error {
		err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(gone), gone)
		if err == nil {
			return fmt.Errorf("Service %s is still there: %v", gone.Name, gone.Finalizers)
		}
		return client.IgnoreNotFound(err)
	})
}

// A status that somebody empties is found again, and nothing is made anew.
func TestServiceStatusEmptied(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	public := f.ingress(t, svc)
	before := f.realised(t, svc)
	empty := client.RawPatch("application/merge-patch+json", []byte(
		`{"status": {"loadBalancers": null, "listeners": null, "pools": null, "members": null, "publicIP": null, "conditions": null}}`))
	if err := f.Client.Status().Patch(t.Context(), before.DeepCopy(), empty); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		now := f.realised(t, svc)
		if diff := cmp.Diff(before.Status, now.Status, cmpopts.IgnoreFields(v1.KuryrLoadBalancerStatus{}, "Conditions")); diff != "" {
			return fmt.Errorf("status (-before +after):\n%s", diff)
		}
		return nil
	})
	if now := f.ingress(t, svc); now != public {
		t.Errorf("floating IP %s has become %s", public, now)
	}
	asker(outside).all(t, public, pods)
}

// Twenty Services at once (six with -short), with two ports each and a floating IP
// every fifth.
func TestServicesAtOnce(t *testing.T) {
	f := withServices(t)
	n := 20
	if testing.Short() {
		n = 3
	}
	pods := f.servers(t, "web", 2)
	began := time.Now()
	var all []*corev1.Service
	for i := range n {
		all = append(all, f.service(t, fmt.Sprintf("web-%02d", i), func(s *corev1.ServiceSpec) {
			s.Selector = map[string]string{"app": "web"}
			if i%5 == 0 {
				s.Type = corev1.ServiceTypeLoadBalancer
			}
		}))
	}
	for _, svc := range all {
		f.realised(t, svc)
	}
	t.Logf("%d Services are in the cloud after %.1f s", len(all), time.Since(began).Seconds())
	from := f.inPod(f.on(t, "n2", "client"))
	for _, svc := range all {
		from.all(t, svc.Spec.ClusterIP, pods)
	}
	began = time.Now()
	pods = f.servers(t, "web", 3)
	for _, svc := range all {
		f.members(t, svc, "TCP:80", at(pods, 8080))
	}
	t.Logf("a third pod is a member of all %.1f s after it was asked for", time.Since(began).Seconds())
}

// listenerOf returns the ID of the listener of TCP, or nothing.
func listenerOf(klb *v1.KuryrLoadBalancer) string {
	for _, l := range klb.Status.Listeners {
		if l.Protocol == "TCP" {
			return l.ID
		}
	}
	return ""
}

func poolOf(klb *v1.KuryrLoadBalancer) string {
	for _, p := range klb.Status.Pools {
		if p.ListenerID == listenerOf(klb) {
			return p.ID
		}
	}
	return ""
}

// memberOf returns the ID of a member of the pool of TCP, by IP:port, or nothing.
func memberOf(klb *v1.KuryrLoadBalancer, address string) string {
	for _, m := range klb.Status.Members {
		if fmt.Sprintf("%s:%d", m.IP, m.Port) == address && m.PoolID == poolOf(klb) {
			return m.ID
		}
	}
	return ""
}
