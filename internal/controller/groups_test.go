// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// TestGroupsThatNoStatusTellsOf: a controller ends after it has put a pod's groups on a port and
// before it could report that. The pod is deleted, and the port's spec has the pool's groups again.
// The status has always named those. The port gets the pool's groups before another pod gets the
// port.
func TestGroupsThatNoStatusTellsOf(t *testing.T) {
	b := idleBed(t)
	b.current.Pools.Min, b.current.Pools.TTL = 1, metav1.Duration{Duration: time.Hour}
	b.current.Pods.SecurityGroups = []config.GroupRule{{PodSelector: labelled("role", "web"), SecurityGroupIDs: []string{otherGroup}}}
	b.set(func(*settings.Settings) {})
	var mute atomic.Bool
	b.newClient = through(interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if mute.Load() && obj.(interface{ GetKind() string }).GetKind() == "KuryrPort" {
				return errLost
			}
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		},
	})
	b.start()
	first := b.pod("first")
	b.bound(first)
	b.settled(2)
	b.eventually("one is available", func() bool { return b.pools()[0].Status.Available == 1 })
	mute.Store(true)
	web := b.pod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"role": "web"} })
	var port *v1.KuryrPort
	b.eventually("the cloud has the pod's group on its port", func() bool {
		port = b.portOf(web)
		return port != nil && slices.Equal(groupsOf(t, b, port.Name), []string{otherGroup})
	})
	b.delete(web)
	b.eventually("its port is taken back", func() bool {
		return slices.ContainsFunc(b.ports(), func(p v1.KuryrPort) bool { return p.Name == port.Name && p.Spec.PodRef == nil })
	})
	b.stop()
	mute.Store(false)
	b.start()
	b.eventually("the free port has the pool's group", func() bool {
		return slices.Equal(groupsOf(t, b, port.Name), []string{group})
	})
}
