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
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxNote is the API server's bound on the text of an Event, in bytes.
const maxNote = 1024

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
	if err := writeTrouble(ctx, c, key, about, fault); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "writing an Event about a problem", "reason", about.reason)
	}
}

func writeTrouble(ctx context.Context, c client.Client, key client.ObjectKey, about trouble, fault error) error {
	var pod corev1.Pod // kubectl describe looks for Events by UID
	if err := c.Get(ctx, key, &pod); err != nil {
		return fmt.Errorf("reading pod %s: %w", key, err)
	}
	note := about.what + fault.Error()
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-len("…")], "") + "…"
	}
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kuryr-controller-", Namespace: key.Namespace},
		EventTime:  metav1.NowMicro(), ReportingController: "kuryr-controller", ReportingInstance: key.Name,
		Type: corev1.EventTypeWarning, Reason: about.reason, Action: about.action, Note: note,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name, UID: pod.UID},
	}
	if err := c.Create(ctx, event); err != nil {
		return fmt.Errorf("creating Event on pod %s: %w", key, err)
	}
	return nil
}
