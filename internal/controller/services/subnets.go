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

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnetPatience is how long a worker waits for the cloud's answer about a subnet. Then the worker
// turns to Services that need no answer, such as deleted ones.
const subnetPatience = time.Second

// keepError returns how long an error about a subnet counts as the answer. The range of an existing
// subnet never changes. So the cloud is asked for a known subnet only by lookAtSubnets, and for a
// missing one once in Backoff.Rejected.
func (o *Options) keepError(err error, _ int) time.Duration {
	if outcome.Of(outcome.Subnet, err).Lasting {
		return o.Backoff.Rejected
	}
	return 0
}

// find returns the subnets of these IDs. lost has the IDs of subnets that do not exist or that
// Kuryr's credential cannot see. find fails if the cloud does not answer, and returns a
// PendingError if the answer takes too long.
func (r *Reconciler) find(ctx context.Context, ids []string) (found []service.Subnet, lost []string, err error) {
	for _, id := range ids {
		one, err := r.ranges.Get(ctx, id, sdn.Always, func(ctx context.Context) (service.Subnet, error) { return r.readSubnet(ctx, id) })
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

func (r *Reconciler) readSubnet(ctx context.Context, id string) (service.Subnet, error) {
	got, err := r.Subnets.Subnet(ctx, id)
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

// subnetPeriod is the time between two checks of the subnets that the settings name. It is that
// between two checks of a load balancer.
func (r *Reconciler) subnetPeriod() time.Duration {
	return settings.CheckInterval(r.Settings.Load().Services.CheckInterval.Duration)
}

// lookAtSubnets asks the cloud again for the known subnets that the settings name. It plans all
// Services again when the cloud no longer shows one of them. A subnet stays known if the cloud does
// not answer. A process that plans no Services asks nothing.
func (r *Reconciler) lookAtSubnets(ctx context.Context) error {
	if r.Shards.Share() == 0 {
		return nil
	}
	rules, changed := r.Settings.Rules(), false
	for _, id := range v1.GroupSet(slices.Concat(rules.Services.SubnetIDs, memberSubnets(rules))) {
		if _, known, err := r.ranges.Fresh(id); !known || err != nil {
			continue
		}
		if _, err := r.readSubnet(ctx, id); outcome.Of(outcome.Subnet, err).Lasting {
			changed = true
			r.ranges.Forget(func(k string, _ service.Subnet) bool { return k == id })
		}
	}
	if changed {
		r.planAll(ctx)
	}
	return nil
}
