// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leading runs f while it holds the controllers' Lease, so that no controller starts to work
// meanwhile. It refuses if a controller leads. A controller that was killed in a pod that still
// exists seems to lead until its Lease expires.
func leading(outer context.Context, cluster *rest.Config, namespace string, do func(context.Context) error) error {
	identity, err := passing("adopt_")
	if err != nil {
		return fmt.Errorf("naming this process: %w", err)
	}
	lock, err := newLease(cluster, namespace, identity)
	if err != nil {
		return fmt.Errorf("preparing to lead: %w", err)
	}
	if err := nobodyLeads(outer, lock, time.Now()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(outer)
	defer stop()
	began, ended := make(chan struct{}), make(chan struct{})
	late := time.AfterFunc(leaseDuration+2*retryPeriod, stop)
	defer late.Stop()
	var result error
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				late.Stop()
				close(began)
				defer close(ended)
				result = do(ctx)
				if result != nil && ctx.Err() != nil && outer.Err() == nil {
					result = fmt.Errorf("the Lease of the controllers was lost on the way, run it again: %w", result)
				}
				stop() // gives the Lease back
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing to lead: %w", err)
	}
	elector.Run(ctx)
	select {
	case <-began:
		<-ended
		return result
	default:
	}
	if outer.Err() != nil {
		return outer.Err()
	}
	return fmt.Errorf("taking Lease %s: no success in %s: the log says why (--force does without)", lock.Describe(), leaseDuration+2*retryPeriod)
}

// nobodyLeads returns an error that names the leader if there is one. If there is no Lease, it
// makes one without a holder: the election would otherwise try to for ever.
func nobodyLeads(ctx context.Context, lock resourcelock.Interface, now time.Time) error {
	record, _, err := lock.Get(ctx)
	if apierrors.IsNotFound(err) {
		err = lock.Create(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1})
		if err != nil {
			return fmt.Errorf("creating Lease %s, by which controllers would wait for this to end (--force does without): %w", lock.Describe(), err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Lease %s, which says whether a controller leads (--force does without): %w", lock.Describe(), err)
	}
	until := record.RenewTime.Add(time.Duration(record.LeaseDurationSeconds) * time.Second)
	if record.HolderIdentity == "" || now.After(until) {
		return nil
	}
	return fmt.Errorf("a controller leads (%s, by Lease %s): stop the controllers first, as with 'kubectl -n kuryr-system scale deployment kuryr-controller --replicas 0', or give --force",
		record.HolderIdentity, lock.Describe())
}
