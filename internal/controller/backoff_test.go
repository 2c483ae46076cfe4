// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestLongOutageOfAWrite: a write that was refused many times is tried again soon after the outage.
// The time between two tries is bounded.
func TestLongOutageOfAWrite(t *testing.T) {
	const refusals = 14 // 5 ms doubled so often are more than a minute
	for name, funcs := range map[string]func(refused func() error) interceptor.Funcs{
		"planning": func(refused func() error) interceptor.Funcs {
			return interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if _, ok := obj.(*v1.KuryrPort); ok {
						if err := refused(); err != nil {
							return err
						}
					}
					return c.Create(ctx, obj, opts...)
				},
			}
		},
		"applying": func(refused func() error) interceptor.Funcs {
			return interceptor.Funcs{
				SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
					if obj.(interface{ GetKind() string }).GetKind() == "KuryrPort" {
						if err := refused(); err != nil {
							return err
						}
					}
					return c.SubResource(sub).Apply(ctx, obj, opts...)
				},
			}
		},
		"annotating": func(refused func() error) interceptor.Funcs {
			return interceptor.Funcs{
				SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
					if obj.(interface{ GetKind() string }).GetKind() == "Pod" {
						if err := refused(); err != nil {
							return err
						}
					}
					return c.SubResource(sub).Apply(ctx, obj, opts...)
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := idleBed(t)
			var n atomic.Int32
			b.newClient = through(funcs(func() error {
				if n.Add(1) <= refusals {
					return errLost
				}
				return nil
			}))
			b.start()
			pod := b.pod("web")
			b.bound(pod)
			b.eventually("the pod is annotated", func() bool { return b.annotation(pod) != "" })
		})
	}
}

// statuses counts the writes of KuryrPorts' statuses and labels.
func statuses(n *atomic.Int32) client.NewClientFunc {
	return through(interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if obj.(interface{ GetKind() string }).GetKind() == "KuryrPort" {
				n.Add(1)
			}
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		},
	})
}

// TestFailedRequestsKeepToTheirBackoff: a failed deletion of a port is written into the status of
// its KuryrPort, once. That write does not cause an immediate request to the SDN.
func TestFailedRequestsKeepToTheirBackoff(t *testing.T) {
	for name, tc := range map[string]struct {
		fault error
		most  int
	}{
		"unavailable": {fmt.Errorf("Neutron answered 500: %w", sdn.ErrUnavailable), 12}, // 5 ms, doubled each time
		"conflict":    {fmt.Errorf("Neutron answered 409: %w", sdn.ErrConflict), 12},
		"forbidden":   {fmt.Errorf("Neutron answered 403: %w", sdn.ErrForbidden), 1}, // 1m
		"busy":        {&sdn.BusyError{After: time.Minute, Err: errors.New("Neutron answered 503")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := idleBed(t)
			b.unhurried = true
			var written atomic.Int32
			b.newClient = statuses(&written)
			b.start()
			pod := b.pod("web")
			b.bound(pod)
			b.fail(memory.DeletePort, tc.fault)
			before := written.Load()
			b.delete(pod)
			b.eventually("the port is to be deleted", func() bool { return b.cloud.Calls(memory.DeletePort) > 0 })
			time.Sleep(4 * time.Second)
			// The port is free, is being deleted, and the status says why it still exists.
			if n, w := b.cloud.Calls(memory.DeletePort), written.Load()-before; n > tc.most || w > 3 {
				t.Errorf("in 4 s %d tries to delete a port and %d writes of its status, want %d and 3 at most", n, w, tc.most)
			}
			b.fail("", nil)
		})
	}
}

// TestErrorsThatAlwaysReadOtherwise: a status whose message differs after each failure does not
// cause an immediate request, either. The pause grows also while the cache shows each of these
// writes later than the first pauses end.
func TestErrorsThatAlwaysReadOtherwise(t *testing.T) {
	for name, late := range map[string]lateBy{"soon": {}, "late": {"KuryrPort", 50 * time.Millisecond}} {
		t.Run("the cache shows writes "+name, func(t *testing.T) { errorsThatAlwaysReadOtherwise(t, late) })
	}
}

func errorsThatAlwaysReadOtherwise(t *testing.T, late lateBy) {
	b := idleBed(t)
	b.cache = late.apply(b.cache)
	b.unhurried = true
	b.set(func(s *settings.Settings) {
		s.Pods.SecurityGroups = []config.GroupRule{{PodSelector: labelled("app", "x"), SecurityGroupIDs: []string{"5f1c5aac-0000-4000-8000-00000000000b"}}}
	})
	var n atomic.Int32
	b.mu.Lock()
	b.before = func(_ context.Context, call string, _ int) error {
		if call == memory.UpdatePort {
			return fmt.Errorf("%w: failure %d", sdn.ErrUnavailable, n.Add(1))
		}
		return nil
	}
	b.mu.Unlock()
	b.start()
	b.pod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} })
	b.eventually("the port is to be updated", func() bool { return n.Load() > 0 })
	time.Sleep(4 * time.Second)
	if n.Load() > 12 {
		t.Errorf("%d tries in 4 s to update a port, want 12 at most", n.Load())
	}
}

// TestErrorsOfOctaviaThatReadOtherwise: the same for the status of a KuryrLoadBalancer. The 409 of
// a VIP in use has the ID of the request in it.
func TestErrorsOfOctaviaThatReadOtherwise(t *testing.T) {
	for name, tc := range map[string]struct {
		fault error
		most  int32
		late  lateBy
	}{
		"conflict":                           {sdn.ErrConflict, 3, lateBy{}},     // 30 s; the events of its creation and of the finalizer may cause one more each
		"rejected":                           {sdn.ErrInvalid, 3, lateBy{}},      // 1m
		"unavailable":                        {sdn.ErrUnavailable, 12, lateBy{}}, // 5 ms, doubled each time
		"unavailable, and the cache is late": {sdn.ErrUnavailable, 12, lateBy{"KuryrLoadBalancer", 50 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			b.unhurried, b.cache = true, tc.late.apply(b.cache)
			var n atomic.Int32
			b.onBefore(func(_ context.Context, call string, _ int) error {
				if call == memory.CreateLoadBalancer {
					return fmt.Errorf("%w: failure %d", tc.fault, n.Add(1))
				}
				return nil
			})
			b.start()
			b.balancer("web")
			b.eventually("a load balancer is requested", func() bool { return n.Load() > 0 })
			time.Sleep(4 * time.Second)
			if n.Load() > tc.most {
				t.Errorf("%d tries in 4 s to create a load balancer, want %d at most", n.Load(), tc.most)
			}
			b.onBefore(nil)
		})
	}
}

// TestEmptiedStatusOfAPort: a status that somebody empties is written again.
func TestEmptiedStatusOfAPort(t *testing.T) {
	b := idleBed(t)
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	if err := b.client.Status().Patch(t.Context(), port, client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	b.eventually("the status says what there is", func() bool {
		now := b.portOf(pod)
		return now.Status.Phase == v1.PortBound && len(now.Status.Conditions) > 0 && now.Grouped()
	})
}
