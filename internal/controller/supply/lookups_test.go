// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// noPorts is a cloud that shows no port.
type noPorts struct{ sdn.Ports }

func (noPorts) Port(context.Context, string) (sdn.Port, error) { return sdn.Port{}, sdn.ErrNotFound }

// sight is what a credential may see: nothing while it is blind.
type sight struct {
	sdn.Visibility
	blind bool
	asked []string
}

func (s *sight) Sees(_ context.Context, project, network string) error {
	s.asked = append(s.asked, project+"/"+network)
	if s.blind {
		return fmt.Errorf("no port is shown: %w", sdn.ErrForbidden)
	}
	return nil
}

// TestRestoreOfWhatIsNotShown: a credential that has lost its role does not see the port of a
// running pod. The port does not count as deleted: it is looked up again.
func TestRestoreOfWhatIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := on("n1", "s1")
		key.ProjectID, key.NetworkID = "project", "network"
		eyes := &sight{blind: true}
		o := options(&slowCloud{})
		o.Ports, o.Visibility = noPorts{}, eyes
		m := New(o)
		m.with(r, func(p *poolMemory) { p.key = &key })
		ctx, stop := context.WithCancel(t.Context())
		go m.lookUp(ctx)
		look := func() (failure error) {
			m.Restore(r, "", "port", v1.Claim{UID: "pod"}, nil)
			synctest.Wait()
			m.with(r, func(p *poolMemory) { failure = p.failure })
			return failure
		}
		if err := look(); !errors.Is(err, sdn.ErrForbidden) || m.LookedUp(r, "port") {
			t.Errorf("a port that is not shown: failure %v, done with it %t; want ErrForbidden, and that it is looked up again", err, m.LookedUp(r, "port"))
		}
		time.Sleep(time.Minute)
		eyes.blind = false
		if look(); !m.LookedUp(r, "port") {
			t.Error("a port that is gone, of those that are shown, is looked up again")
		}
		if len(eyes.asked) != 2 || eyes.asked[0] != "project/network" {
			t.Errorf("it was asked what is seen of %q, want the pool's project and network twice", eyes.asked)
		}
		stop()
		synctest.Wait()
	})
}
