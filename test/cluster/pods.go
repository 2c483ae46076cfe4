// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Template is a pod that serves HTTP on 8080 (/hostname answers its name) and
// UDP on 8081 (likewise), and holds a shell with curl, nc, ping and sha256sum.
// A node of "" leaves the choice to the scheduler.
func Template(labels map[string]string, node string) corev1.PodTemplateSpec {
	grace := int64(1) // netexec does not end by itself
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "agnhost", Image: Image,
			Args: []string{"netexec", "--http-port=8080", "--udp-port=8081"},
		}},
	}
	if node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
}

// Pod makes a pod of Template.
func (c *Cluster) Pod(ctx context.Context, namespace, name, node string) (*corev1.Pod, error) {
	t := Template(map[string]string{"app": name}, node)
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Namespace, pod.Name = namespace, name
	if err := c.Client.Create(ctx, pod); err != nil {
		return nil, err
	}
	return pod, nil
}

// Started is a pod that runs, with when a watcher saw it come.
type Started struct {
	Pod       *corev1.Pod
	Scheduled time.Time // seen with a node
	Running   time.Time // seen with all its containers running
}

// Follow watches the pods of a label until n of them run, and returns them by name.
func (c *Cluster) Follow(ctx context.Context, namespace string, labels map[string]string, n int) ([]Started, error) {
	watch, err := c.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), client.MatchingLabels(labels))
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	pods := map[string]*Started{}
	running := 0
	for running < n {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %d pods of %s to run: %d do: %w", n, namespace, running, ctx.Err())
		case event, open := <-watch.ResultChan():
			if !open {
				return nil, fmt.Errorf("waiting for %d pods of %s to run: the watch ended", n, namespace)
			}
			pod, is := event.Object.(*corev1.Pod)
			if is && pod.DeletionTimestamp == nil && observe(pods, pod) {
				running++
			}
		}
	}
	var started []Started
	for _, s := range pods {
		if !s.Running.IsZero() {
			started = append(started, *s)
		}
	}
	slices.SortFunc(started, func(a, b Started) int {
		return slices.Compare([]string{a.Pod.Spec.NodeName, a.Pod.Name}, []string{b.Pod.Spec.NodeName, b.Pod.Name})
	})
	return started, nil
}

// observe notes what is new on a pod and returns whether it runs since now.
func observe(pods map[string]*Started, pod *corev1.Pod) bool {
	s := pods[pod.Name]
	if s == nil {
		s = &Started{}
		pods[pod.Name] = s
	}
	s.Pod = pod
	if s.Scheduled.IsZero() && pod.Spec.NodeName != "" {
		s.Scheduled = time.Now()
	}
	if !s.Running.IsZero() || pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
		return false
	}
	s.Running = time.Now()
	return true
}

// KuryrPortOf returns the KuryrPort that a pod has.
func (c *Cluster) KuryrPortOf(ctx context.Context, pod *corev1.Pod) (*v1.KuryrPort, error) {
	var list v1.KuryrPortList
	node := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", pod.Spec.NodeName)}
	if err := c.Client.List(ctx, &list, node); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if ref := list.Items[i].Spec.PodRef; ref != nil && ref.UID == pod.UID {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s has no KuryrPort", pod.Namespace, pod.Name)
}

// Until repeats check every 200 ms until it returns nil or ctx ends, and then
// returns its last error.
func Until(ctx context.Context, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (gave up: %w)", err, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
