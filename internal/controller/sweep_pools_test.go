// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/crashtest"
)

// TestPoolWhileWritesMeetTheirFate runs the life of a pool with all its operations. The pool is
// filled. Its ports are claimed, released, reused after a cooldown and given up. Its node is
// deleted.
func TestPoolWhileWritesMeetTheirFate(t *testing.T) {
	s := sweepOf(t)
	s.Begin = func(w *crashtest.World) crashtest.Life { return newPoolLife(w, newOpenstack).life() }
	s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter)
	t.Run("sampled", func(t *testing.T) {
		s.Every *= 3
		s.Run(t, crashtest.Refused, crashtest.AnswerLost, crashtest.AnswerLostAndViewLate)
	})
}

// cooldown is how long a port of the pool is not reused.
const cooldown = 100 * time.Millisecond

// poolLife is the life of one pool in one world.
type poolLife struct {
	*podsLife
	gone bool // the node is deleted
}

func newPoolLife(w *crashtest.World, newCloud func(*crashtest.World) swept) *poolLife {
	l := &poolLife{podsLife: newPodsLife(w, newCloud)}
	l.settings.Pools = config.Pools{
		Min: 1, Max: 2, Batch: 2, TTL: metav1.Duration{Duration: time.Hour}, Cooldown: metav1.Duration{Duration: cooldown},
	}
	l.live = settings.NewLive(l.settings)
	l.newClient = l.watchful
	return l
}

func (l *poolLife) life() crashtest.Life {
	life := l.podsLife.life()
	life.Steps, life.Restarting, life.Uneven = l.steps, l.restarting, l.uneven
	// Six ports are of the steps, and two arrive while others cool down or are given up. A stopped
	// process may have requested two for pods and two to keep. The next process needs one for its
	// probe, too.
	life.Limits = map[string]int{"port": 8 + 5*max(1, l.w.Stopped())}
	return life
}

// watchful returns a process's client that checks, before a port is bound, whether the cooldown of
// the port is over.
func (l *poolLife) watchful(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(cfg, o)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if port, ok := obj.(*v1.KuryrPort); ok && port.Spec.PodRef != nil {
				l.checkRested(port)
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}), nil
}

func (l *poolLife) checkRested(next *v1.KuryrPort) {
	var port v1.KuryrPort
	err := l.w.Client.Get(context.WithoutCancel(l.w.T.Context()), client.ObjectKeyFromObject(next), &port)
	if err != nil || port.Spec.PodRef != nil || port.ResourceVersion != next.ResourceVersion {
		return // it is bound already, or the patch will fail
	}
	released, err := time.Parse(time.RFC3339Nano, port.Annotations["kuryr.openstack.org/released-at"])
	if rested := time.Since(released); err == nil && rested < cooldown {
		l.w.T.Errorf("port %s goes to pod %s %s after it was released, want %s at least", port.Name, next.Spec.PodRef.Name, rested, cooldown)
	}
}

// steps runs four pods and deletes the pool in two steps. The last pod needs a port while only one
// is free, still in its cooldown.
func (l *poolLife) steps() {
	w := l.w
	first := w.Pod("first")
	port := w.Bound(first)
	w.Plug(port)
	second := w.Pod("second")
	other := w.Bound(second)
	w.Plug(other)
	w.Settled()
	w.Delete(first)
	w.Unplug(port)
	third, fourth := w.Pod("third"), w.Pod("fourth")
	again := w.Bound(third)
	w.Plug(again)
	w.Bound(fourth)
	l.fill(port.Spec.Pool)
	w.Finish(second)
	w.Unplug(other)
	w.Settled()
	w.Delete(fourth)
	l.set(func(s *settings.Settings) { s.Pools.TTL.Duration = 0 })
	w.Settled()
	w.Delete(third)
	w.Unplug(again)
	l.gone = true
	w.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Node}})
	w.Delete(second)
	w.Settled()
}

// fill requests as many free ports as the pool may have.
func (l *poolLife) fill(pool string) {
	w := l.w
	w.Say("pool %s is to be filled", pool)
	object := &v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"2"}}}`, v1.FillAnnotation)
	ctx := context.WithoutCancel(w.T.Context())
	if err := w.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.T.Fatal(err)
	}
	w.Eventually("the pool has been filled", func() bool {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			w.T.Fatal(err)
		}
		return object.Annotations[v1.FillAnnotation] == ""
	})
}

// restarting is that of podsLife while the node exists.
func (l *poolLife) restarting() (served, then func()) {
	if !l.gone {
		return l.podsLife.restarting()
	}
	l.live = settings.NewLive(l.settings)
	return nil, nil
}

// uneven returns the faults in the number of free ports.
func (l *poolLife) uneven() []string {
	if !l.gone {
		return l.podsLife.uneven()
	}
	if n := len(l.w.Ports()); n > 0 {
		return []string{fmt.Sprintf("%d ports are left of a node that is gone", n)}
	}
	return nil
}
