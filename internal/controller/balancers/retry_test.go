// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// TestRetryUnready: each time the cloud is back, what is not ready is tried again. If that comes
// within a minute of the time before, it is done at its end, once.
func TestRetryUnready(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	klb := &v1.KuryrLoadBalancer{}
	klb.Namespace, klb.Name = "shop", "web"
	r := &Reconciler{
		Options: Options{Shards: kube.Alone{}}, client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(klb).Build(),
	}
	req := kube.RequestOf(klb)
	retried := func() bool {
		synctest.Wait()
		defer r.memories.forget(req)
		return r.memories.all[req] != nil && r.memories.all[req].asked.retry
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.back = kube.NewSignal() // of this bubble
		ended := make(chan error)
		go func() {
			ended <- kube.Every("retry", func() time.Duration { return kube.Never }, r.retryUnready, r.back)(ctx)
		}()
		if retried() {
			t.Error("retried before any outage")
		}
		r.back.Send()
		if !retried() {
			t.Error("not retried when the cloud is back")
		}
		time.Sleep(retryGap / 2)
		r.back.Send()
		r.back.Send()
		if retried() {
			t.Error("retried again within the gap")
		}
		time.Sleep(retryGap/2 + time.Second)
		if !retried() {
			t.Error("what the cloud's second return asked for was dropped")
		}
		time.Sleep(2 * retryGap)
		if retried() {
			t.Error("retried without another return of the cloud")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
