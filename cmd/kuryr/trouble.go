// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
)

// trouble is what an Event on the controller's own pod is about.
type trouble struct{ reason, action, what string }

var (
	configurationRefused = trouble{"ConfigurationRefused", "ReadConfiguration", "The changed configuration has faults, the one before stays in use: "}
	servicesNotServed    = trouble{"ServicesNotServed", "ServeServices", ""}
)

// tellPod writes an Event on the controller's own pod, for example why its changed configuration is
// refused. Outside of a pod there is only the log. It writes the Event directly: a recorder would
// treat the next fault as the same Event and keep the text of the first.
func tellPod(ctx context.Context, c client.Client, about trouble, fault error) {
	key := client.ObjectKey{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}
	if key.Namespace == "" || key.Name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var pod corev1.Pod // kubectl describe looks for Events by UID
	err := c.Get(ctx, key, &pod)
	if err == nil {
		name := fmt.Sprintf("%s-%x", key.Name, time.Now().UnixNano())
		err = kube.Announce(ctx, c, name, kube.Reference(&pod, "Pod"), about.reason, about.action, outcome.Cut(about.what+fault.Error()))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "writing an Event about a problem", "reason", about.reason)
	}
}
