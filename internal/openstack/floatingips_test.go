// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestFloatingIPMovesWhileItIsDeleted: it is looked at, somebody gives it to another port,
// and it is not deleted under them.
func TestFloatingIPMovesWhileItIsDeleted(t *testing.T) {
	f := newFront(t)
	target := f.services(t).target(t, "ovn")
	b, ctx := target.Backend, t.Context()
	lb, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.200", 1, 1))
	must(t, err)
	made, err := b.CreateFloatingIP(ctx, serviceOwner, sdn.FloatingIPRequest{ProjectID: target.ProjectID, NetworkID: target.ExternalNetwork})
	must(t, err)
	t.Cleanup(func() { must(t, b.DeleteFloatingIP(context.Background(), made.ID, lb.VIPPortID)) })
	var moved atomic.Bool
	f.before = func(_ http.ResponseWriter, r *http.Request, _ object) bool {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/floatingips/") && !moved.Swap(true) {
			if err := b.Associate(ctx, made.ID, lb.VIPPortID); err != nil {
				t.Errorf("Associate meanwhile: %v", err)
			}
		}
		return false
	}
	if err := b.DeleteFloatingIP(ctx, made.ID, ""); !errors.Is(err, sdn.ErrConflict) || !target.Cloud.HasFloatingIP(t, made.ID) {
		t.Errorf("DeleteFloatingIP of one that has moved: %v, want ErrConflict and that it stays", err)
	}
}
