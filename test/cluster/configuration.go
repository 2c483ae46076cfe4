// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// KuryrNamespace is where Kuryr itself is deployed.
const KuryrNamespace = "kuryr-system"

// ChangeConfiguration changes Kuryr's configuration, as a person with kubectl would,
// and returns the document as it was.
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

// WriteConfiguration replaces the document, and has the controller's pod see it soon.
func (c *Cluster) WriteConfiguration(ctx context.Context, document string) error {
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = KuryrNamespace, "kuryr-config"
	if err := c.merge(ctx, cm, map[string]any{"data": map[string]string{"kuryr.yaml": document}}); err != nil {
		return err
	}
	// A change of the pod makes kubelet look at its volumes at once, and not
	// within its next minute.
	poke := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"e2e/poke": time.Now().String()}}}
	var pods corev1.PodList
	errs := []error{c.Client.List(ctx, &pods, client.InNamespace(KuryrNamespace))}
	for i := range pods.Items {
		if strings.HasPrefix(pods.Items[i].Name, "kuryr-controller") {
			errs = append(errs, c.merge(ctx, &pods.Items[i], poke))
		}
	}
	return errors.Join(errs...)
}

// merge patches an object.
func (c *Cluster) merge(ctx context.Context, o client.Object, patch any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return c.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, data))
}
