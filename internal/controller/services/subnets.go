// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnetPatience is how long a worker waits for the cloud's answer about a subnet. Then the worker
// turns to Services that need no answer, such as deleted ones.
const subnetPatience = time.Second

// subnetBook knows the address ranges of subnets. The range of an existing subnet never changes. So
// the cloud is asked for a known subnet only by recheck. Its methods are safe for concurrent use.
type subnetBook struct {
	cloud sdn.Subnets
	again time.Duration // how long the cloud is not asked again for a missing subnet

	mu    sync.Mutex // not held during calls
	known map[string]service.Subnet
	lost  map[string]time.Time // when the cloud said that a subnet does not exist
	asked map[string]time.Time // when the call in progress began

	calls singleflight.Group // by ID
}

// find returns the subnets of these IDs. lost has the IDs of subnets that do not exist or that
// Kuryr's credential cannot see. find fails if the cloud does not answer, and returns a
// PendingError if the answer takes too long.
func (b *subnetBook) find(ctx context.Context, ids []string) (found []service.Subnet, lost []string, err error) {
	for _, id := range ids {
		s, err := b.get(ctx, id)
		switch {
		case err == nil:
			found = append(found, s)
		case outcome.Of(outcome.Subnet, err).Lasting:
			lost = append(lost, id)
		default:
			return nil, nil, err
		}
	}
	return found, lost, nil
}

// get returns one subnet, and asks the cloud if the subnet is not known. The call continues after
// the caller has run out of patience. Concurrent callers share one call per subnet.
func (b *subnetBook) get(ctx context.Context, id string) (service.Subnet, error) {
	b.mu.Lock()
	if s, ok := b.known[id]; ok {
		b.mu.Unlock()
		return s, nil
	}
	if at, ok := b.lost[id]; ok && time.Since(at) < b.again {
		b.mu.Unlock()
		return service.Subnet{}, sdn.ErrNotFound
	}
	if b.known == nil {
		b.known, b.lost, b.asked = map[string]service.Subnet{}, map[string]time.Time{}, map[string]time.Time{}
	}
	if _, underWay := b.asked[id]; !underWay {
		b.asked[id] = time.Now()
	}
	patience := time.NewTimer(subnetPatience - time.Since(b.asked[id]))
	defer patience.Stop()
	// The call ends at the latest with the deadline of each request to the cloud.
	answer := b.calls.DoChan(id, func() (any, error) { return b.call(ctx, id) })
	b.mu.Unlock()
	select {
	case a := <-answer:
		return a.Val.(service.Subnet), a.Err
	case <-ctx.Done():
		return service.Subnet{}, ctx.Err()
	case <-patience.C:
		return service.Subnet{}, &sdn.PendingError{What: "the cloud's answer about subnet " + id, Retry: subnetPatience}
	}
}

// call asks the cloud for a subnet and records the answer.
func (b *subnetBook) call(ctx context.Context, id string) (service.Subnet, error) {
	got, err := b.ask(ctx, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asked, id)
	switch {
	case err == nil:
		delete(b.lost, id)
		b.known[id] = got
	case outcome.Of(outcome.Subnet, err).Lasting:
		ctrl.LoggerFrom(ctx).Error(err, "cannot read the prefix of a subnet of the configuration", "subnet", id)
		b.lost[id] = time.Now()
	}
	return got, err
}

func (b *subnetBook) ask(ctx context.Context, id string) (service.Subnet, error) {
	got, err := b.cloud.Subnet(ctx, id)
	if err != nil {
		return service.Subnet{}, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	prefix, err := netip.ParsePrefix(got.CIDR)
	if err != nil {
		return service.Subnet{}, fmt.Errorf("reading subnet %s: %w: %w", id, sdn.ErrInvalid, err)
	}
	return service.Subnet{ID: got.ID, Prefix: prefix.Masked()}, nil
}

// recheck asks the cloud again for all known subnets. It reports whether the cloud no longer shows
// one of them. A subnet stays known if the cloud does not answer.
func (b *subnetBook) recheck(ctx context.Context) (changed bool) {
	b.mu.Lock()
	ids := slices.Sorted(maps.Keys(b.known))
	b.mu.Unlock()
	for _, id := range ids {
		_, err := b.ask(ctx, id)
		if err == nil || !outcome.Of(outcome.Subnet, err).Lasting {
			continue
		}
		ctrl.LoggerFrom(ctx).Error(err, "a subnet of the configuration is not shown any more", "subnet", id)
		changed = true
		b.mu.Lock()
		delete(b.known, id)
		b.lost[id] = time.Now()
		b.mu.Unlock()
	}
	return changed
}

// forgive allows the cloud to be asked again for subnets that did not exist.
func (b *subnetBook) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.lost)
}
