// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestSubnetsUnknown: while the cloud does not tell what subnets there are Services wait,
// and go without waiting when they are deleted.
func TestSubnetsUnknown(t *testing.T) {
	b := newServiceBed(t)
	b.book.fail(sdn.ErrUnavailable)
	b.launch()
	b.service("web")
	b.slice("web", "web-1", "10.1.0.5")
	b.never("a plan without subnets", func() bool { return b.balancerOf("web") != nil })
	going := b.service("going", func(s *corev1.Service) { s.Finalizers = []string{v1.ServiceFinalizer} })
	b.delete(going)
	b.eventually("a Service that is deleted is gone", func() bool { return b.now(going) == nil })
	b.book.fail(nil)
	b.members("web", "10.1.0.5")
}

// TestSubnetsSlow: while the cloud takes its time to say what subnets there are, no
// worker waits for that for long, and a Service that goes does not at all.
func TestSubnetsSlow(t *testing.T) {
	b := newServiceBed(t)
	release := b.book.block()
	defer release()
	b.launch()
	going := b.service("going", func(s *corev1.Service) { s.Finalizers = []string{v1.ServiceFinalizer} })
	for i := range 20 { // more than there are workers
		b.service(fmt.Sprint("web-", i))
	}
	b.slice("web-0", "web-1", "10.1.0.5")
	b.eventually("the cloud is asked", func() bool { return b.book.count() > 0 })
	b.delete(going)
	b.eventuallyIn(10*time.Second, "the Service that goes is gone", func() bool { return b.now(going) == nil })
	if n := b.book.count(); n != 1 {
		t.Errorf("%d calls for one subnet", n)
	}
	release()
	b.members("web-0", "10.1.0.5")
}

// TestSubnetsForbidden: what there is stays when the cloud does not show the subnets
// any more.
func TestSubnetsForbidden(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web")
	s := b.slice("web", "web-1", "10.1.0.5", "10.1.0.6")
	klb := b.members("web", "10.1.0.5", "10.1.0.6")
	b.stop()
	b.book.fail(sdn.ErrForbidden)
	b.launch()
	b.eventually("it is said", func() bool {
		c := b.planned(svc)
		return c != nil && strings.Contains(c.Message, "the cloud shows no subnet "+vipSubnet)
	})
	b.quiet()
	if diff := cmp.Diff(klb.Spec, b.balancerOf("web").Spec); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
	b.patch(s, map[string]any{"endpoints": endpointsAt("10.1.0.6")})
	b.members("web", "10.1.0.6")
	b.book.fail(nil)
	b.eventually("all is well", func() bool { return b.planned(svc) == nil })
}
