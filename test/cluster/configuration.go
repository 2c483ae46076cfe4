// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kuryr-go/kuryr/internal/config"
)

// KuryrNamespace is where Kuryr itself is deployed.
const KuryrNamespace = "kuryr-system"

// ChangeConfiguration changes Kuryr's configuration, as a person with kubectl would,
// and returns the document as it was. See WriteConfiguration.
func (c *Cluster) ChangeConfiguration(ctx context.Context, change func(document map[string]any)) (before string, err error) {
	cm := &corev1.ConfigMap{}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: KuryrNamespace, Name: "kuryr-config"}, cm); err != nil {
		return "", err
	}
	before = cm.Data["kuryr.yaml"]
	var document map[string]any
	if err := yaml.Unmarshal([]byte(before), &document); err != nil {
		return "", fmt.Errorf("reading Kuryr's configuration: %w", err)
	}
	change(document)
	data, err := yaml.Marshal(document)
	if err != nil {
		return "", fmt.Errorf("writing Kuryr's configuration: %w", err)
	}
	return before, c.WriteConfiguration(ctx, string(data))
}

// WriteConfiguration replaces the document, and waits until the controller, if one
// runs, has taken it up or, if it has faults, has refused it.
func (c *Cluster) WriteConfiguration(ctx context.Context, document string) error {
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = KuryrNamespace, "kuryr-config"
	if err := c.merge(ctx, cm, map[string]any{"data": map[string]string{"kuryr.yaml": document}}); err != nil {
		return err
	}
	want := []string{"kuryr_configuration_valid 1", fmt.Sprintf("kuryr_configuration_info{hash=%q} 1", config.Hash([]byte(document)))}
	if _, err := config.Parse([]byte(document)); err != nil {
		want = []string{"kuryr_configuration_valid 0"}
	}
	return Until(ctx, func() error { return c.takenUp(ctx, want) })
}

// takenUp reports why the metrics of a replica of the controller do not have all lines. A change of its pod
// makes kubelet look at the pod's volumes at once, and not within its next minute; but
// kubelet may not have heard of the ConfigMap's change then.
func (c *Cluster) takenUp(ctx context.Context, lines []string) error {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(KuryrNamespace)); err != nil {
		return err
	}
	var missing error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !strings.HasPrefix(pod.Name, "kuryr-controller") || pod.DeletionTimestamp != nil {
			continue
		}
		err := c.shows(ctx, pod, lines)
		if err == nil {
			continue
		}
		missing = fmt.Errorf("%s has not taken up the configuration: %w", pod.Name, err)
		poke := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"e2e/poke": time.Now().String()}}}
		if err := c.merge(ctx, pod, poke); err != nil {
			return err
		}
	}
	return missing
}

// shows reports why the metrics of a controller do not have all lines.
func (c *Cluster) shows(ctx context.Context, controller *corev1.Pod, lines []string) error {
	metrics, err := c.OnNode(ctx, controller.Spec.NodeName, "curl", "-sS", "-m5", "http://127.0.0.1:9654/metrics")
	if err != nil {
		return err
	}
	have := strings.Split(metrics, "\n")
	for _, line := range lines {
		if !slices.Contains(have, line) {
			return fmt.Errorf("its metrics have no %q", line)
		}
	}
	return nil
}

// merge patches an object.
func (c *Cluster) merge(ctx context.Context, o client.Object, patch any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return c.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, data))
}
