// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnetPatience is how long a worker waits for what the cloud says of a subnet. Then
// it turns to Services that need no answer, as those that are deleted.
const subnetPatience = time.Second

// subnetBook knows what addresses are in a subnet. That never changes, so each is
// asked for once. Its methods are safe for concurrent use.
type subnetBook struct {
	cloud sdn.Subnets
	again time.Duration // after that what was not there is asked for again
	now   func() time.Time

	mu    sync.Mutex // not held during calls
	known map[string]service.Subnet
	lost  map[string]time.Time // when it was asked for in vain
	asked map[string]*subnetQuestion
}

// subnetQuestion is a call under way, which all share who want the same.
type subnetQuestion struct {
	began time.Time
	done  chan struct{}
	got   service.Subnet
	err   error
}

// find returns the subnets of these IDs and, apart, those IDs that are none, as far
// as our credential can see. It fails if the cloud does not answer, and with a
// PendingError if it takes its time.
func (b *subnetBook) find(ctx context.Context, ids []string) (found []service.Subnet, lost []string, err error) {
	for _, id := range ids {
		s, err := b.get(ctx, id)
		switch {
		case err == nil:
			found = append(found, s)
		case lasting(err):
			lost = append(lost, id)
		default:
			return nil, nil, err
		}
	}
	return found, lost, nil
}

// lasting reports whether somebody has to do something about an error.
func lasting(err error) bool {
	return errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrForbidden)
}

// get returns one subnet. If it is not known it is asked for, which goes on when the
// caller has lost patience.
func (b *subnetBook) get(ctx context.Context, id string) (service.Subnet, error) {
	a, s, err := b.look(ctx, id)
	if a == nil {
		return s, err
	}
	patience := time.NewTimer(subnetPatience - b.now().Sub(a.began))
	defer patience.Stop()
	select {
	case <-a.done:
		return a.got, a.err
	case <-ctx.Done():
		return service.Subnet{}, ctx.Err()
	case <-patience.C:
		return service.Subnet{}, &sdn.PendingError{What: "what the cloud says of subnet " + id, Retry: subnetPatience}
	}
}

// look returns what is known of a subnet, or the call that asks for it.
func (b *subnetBook) look(ctx context.Context, id string) (*subnetQuestion, service.Subnet, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.known[id]; ok {
		return nil, s, nil
	}
	if at, ok := b.lost[id]; ok && b.now().Sub(at) < b.again {
		return nil, service.Subnet{}, sdn.ErrNotFound
	}
	a := b.asked[id]
	if a == nil {
		if b.known == nil {
			b.known, b.lost, b.asked = map[string]service.Subnet{}, map[string]time.Time{}, map[string]*subnetQuestion{}
		}
		a = &subnetQuestion{began: b.now(), done: make(chan struct{})}
		b.asked[id] = a
		go b.call(ctx, id, a) // it ends by the deadline of each call to the cloud
	}
	return a, service.Subnet{}, nil
}

// call asks the cloud and writes down what it says.
func (b *subnetBook) call(ctx context.Context, id string, a *subnetQuestion) {
	defer close(a.done)
	a.got, a.err = b.ask(ctx, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asked, id)
	switch {
	case a.err == nil:
		delete(b.lost, id)
		b.known[id] = a.got
	case lasting(a.err):
		ctrl.LoggerFrom(ctx).Error(a.err, "cannot tell what addresses are in a subnet of the configuration", "subnet", id)
		b.lost[id] = b.now()
	}
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

// forgive has subnets asked for again that were not there.
func (b *subnetBook) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.lost)
}
