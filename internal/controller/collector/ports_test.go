// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// A port that the SDN could not bind to its host is of no use to a pool.
func TestUnboundPortsAreNotTakenOver(t *testing.T) {
	for _, c := range []struct {
		port, pool string
		want       bool
	}{
		{"ovs", "", true}, {"binding-failed", "", false}, {"binding-failed", "bridge", false},
		{"unbound", "", false}, {"unbound", "bridge", true}, {"", "", false},
	} {
		key := &v1.PoolKey{NodeName: "n", VIFType: c.pool}
		port := sdn.Port{Name: sdn.FreePortName, Host: "n", VIF: v1.VIF{Type: c.port}}
		if got := fresh(port, key); got != c.want {
			t.Errorf("port of type %q for a pool of type %q: %v, want %v", c.port, c.pool, got, c.want)
		}
	}
}

// slowDeletions takes a second for each deletion.
type slowDeletions struct {
	sdn.Ports
	deleted, underWay, most atomic.Int32
}

func (s *slowDeletions) DeleteUnchangedPort(_ context.Context, id string, _ int) error {
	n := s.underWay.Add(1)
	defer s.underWay.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	time.Sleep(time.Second)
	if id == "stays" {
		return sdn.ErrUnavailable
	}
	s.deleted.Add(1)
	return nil
}

type nobody struct{ arrivals }

func (nobody) Freed(pool.Ref) {}

// nothing is an API server without objects.
type nothing struct{ client.Reader }

func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// Thousands of unnamed ports are deleted concurrently. A port that cannot be deleted does not stop
// the others.
func TestManyOrphansAreCollectedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &slowDeletions{}
		r := &ports{PortOptions: PortOptions{Cloud: cloud, Supply: nobody{}}, live: nothing{}}
		kind := &Kind{Name: "port", Wanted: r.wanted, Adopt: r.adopt, Delete: r.delete, Deleted: orphansDeleted}
		all := []*leftover{{Resource: Resource{Kind: kind, ID: "stays"}}}
		v := &Inventory{Shards: kube.Alone{}, unnamed: map[string]*leftover{"stays": all[0]}}
		for i := range 79 {
			id := fmt.Sprintf("goes %d", i)
			v.unnamed[id] = &leftover{Resource: Resource{Kind: kind, ID: id}}
			all = append(all, v.unnamed[id])
		}
		began := time.Now()
		err := v.collect(t.Context(), all)
		if err == nil || !strings.Contains(err.Error(), "port stays") {
			t.Errorf("collect: %v, want an error that names the port that stays", err)
		}
		if took := time.Since(began); took != 10*time.Second || cloud.most.Load() != atOnce || cloud.deleted.Load() != 79 {
			t.Errorf("%d of 79 ports deleted in %s, %d at once; want all in 10 s, %d at once", cloud.deleted.Load(), took, cloud.most.Load(), atOnce)
		}
	})
}
