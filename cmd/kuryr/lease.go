// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// leaseName is of the Lease by which one controller leads.
const leaseName = "kuryr-controller"

// Times of the leader election. A leader ends, with its process, only after the API server was
// unreachable for longer than its restart takes. Another replica takes over at once if the leader
// ends in order or its pod is gone. It waits for leaseDuration if that is unknown, as when the
// leader's node is lost.
const (
	leaseDuration = 30 * time.Second
	renewDeadline = 25 * time.Second
	retryPeriod   = 3 * time.Second
)

// elect lets one replica lead, by a Lease. The replica goes by its pod's name:
// a container that was killed and starts again in its pod is the leader still,
// and need not wait until its own Lease has run out.
func elect(o *ctrl.Options, cluster *rest.Config, namespace string) error {
	identity := os.Getenv("POD_NAME")
	if identity == "" {
		var err error
		if identity, err = passing(""); err != nil {
			return fmt.Errorf("naming this replica for leader election: %w", err)
		}
	}
	lock, err := newLease(cluster, namespace, identity)
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	o.LeaderElection = true
	o.LeaderElectionResourceLockInterface = lock
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = new(leaseDuration), new(renewDeadline), new(retryPeriod)
	return nil
}

// passing names a process that is no pod of its own. It has an underscore, which
// no pod's name has.
func passing(prefix string) (string, error) {
	host, err := os.Hostname()
	return prefix + host + "_" + string(uuid.NewUUID()), err
}

// lease is the controllers' Lease. It reads as free if its holder was a pod that no longer exists,
// because a killed leader cannot release it.
//
// A pod's object is deleted when kubelet has seen its containers end, or by force. After a forced
// deletion two leaders may work for a moment, as after any election by time: their writes carry the
// resource version that they have seen.
type lease struct {
	resourcelock.Interface
	pods corev1client.PodInterface
}

// newLease is the Lease in a namespace, to be held under an identity.
func newLease(cluster *rest.Config, namespace, identity string) (*lease, error) {
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: identity}, cluster, renewDeadline)
	if err != nil {
		return nil, err
	}
	bounded := rest.CopyConfig(cluster)
	bounded.Timeout = renewDeadline / 2 // as client-go bounds the Lease's own requests
	pods, err := corev1client.NewForConfig(bounded)
	if err != nil {
		return nil, err
	}
	return &lease{Interface: lock, pods: pods.Pods(namespace)}, nil
}

// Get implements resourcelock.Interface. The raw text is as it was read: by it
// the election sees whether a holder renews.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil || record.HolderIdentity == l.Identity() || !l.gone(ctx, record.HolderIdentity) {
		return record, raw, err
	}
	ctrl.Log.Info("treating the Lease as free: its holder's pod is gone", "lease", l.Describe(), "holder", record.HolderIdentity)
	record.HolderIdentity = ""
	return record, raw, nil
}

// gone reports whether a holder is known to have ended. In doubt it has not.
func (l *lease) gone(ctx context.Context, holder string) bool {
	if holder == "" || strings.Contains(holder, "_") {
		return false // nobody, or no pod
	}
	pod, err := l.pods.Get(ctx, holder, metav1.GetOptions{})
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
