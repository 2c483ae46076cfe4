// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnetPatience is how long a worker waits for the cloud's answer about a subnet. Then the worker
// turns to Services that need no answer, such as deleted ones.
const subnetPatience = time.Second

// subnets are the address ranges of subnets, by ID. The range of an existing subnet never changes. So
// the cloud is asked for a known subnet only by recheck, and for a missing one once in Backoff.Rejected.
type subnets struct {
	cloud sdn.Subnets
	known sdn.Answers[string, service.Subnet]
}

func newSubnets(o *Options) *subnets {
	keep := func(err error, _ int) time.Duration {
		if outcome.Of(outcome.Subnet, err).Lasting {
			return o.Backoff.Rejected
		}
		return 0
	}
	return &subnets{o.Subnets, sdn.Answers[string, service.Subnet]{KeepError: keep, Patience: subnetPatience}}
}

// find returns the subnets of these IDs. lost has the IDs of subnets that do not exist or that
// Kuryr's credential cannot see. find fails if the cloud does not answer, and returns a
// PendingError if the answer takes too long.
func (s *subnets) find(ctx context.Context, ids []string) (found []service.Subnet, lost []string, err error) {
	for _, id := range ids {
		one, err := s.known.Get(ctx, id, sdn.Always, func(ctx context.Context) (service.Subnet, error) { return s.read(ctx, id) })
		switch {
		case err == nil:
			found = append(found, one)
		case outcome.Of(outcome.Subnet, err).Lasting:
			lost = append(lost, id)
		default:
			return nil, nil, err
		}
	}
	return found, lost, nil
}

func (s *subnets) read(ctx context.Context, id string) (service.Subnet, error) {
	got, err := s.cloud.Subnet(ctx, id)
	var prefix netip.Prefix
	if err == nil {
		if prefix, err = netip.ParsePrefix(got.CIDR); err != nil {
			err = fmt.Errorf("%w: %w", sdn.ErrInvalid, err)
		}
	}
	if outcome.Of(outcome.Subnet, err).Lasting {
		ctrl.LoggerFrom(ctx).Error(err, "cannot read the prefix of a subnet of the configuration", "subnet", id)
	}
	if err != nil {
		return service.Subnet{}, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	return service.Subnet{ID: got.ID, Prefix: prefix.Masked()}, nil
}

// recheck asks the cloud again for those of these subnets that are known. It reports whether the cloud
// no longer shows one of them. A subnet stays known if the cloud does not answer.
func (s *subnets) recheck(ctx context.Context, ids []string) (changed bool) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if _, known, err := s.known.Fresh(id); !known || err != nil {
			continue
		}
		if _, err := s.read(ctx, id); outcome.Of(outcome.Subnet, err).Lasting {
			changed = true
			s.known.Forget(func(k string, _ service.Subnet) bool { return k == id })
		}
	}
	return changed
}
