// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// FieldOwner is the daemon's field owner in server-side apply.
const FieldOwner = "kuryr-daemon"

const reportTimeout = 10 * time.Second

// API is the Kubernetes API, restricted to one node's KuryrPorts. It needs the right to get, list
// and watch kuryrports, and to patch kuryrports/status.
type API struct {
	client rest.Interface
	node   string
}

// Connect prepares requests for the KuryrPorts of node. It sends nothing yet.
func Connect(cfg *rest.Config, node string) (*API, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("preparing the Kubernetes client: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion = &v1.GroupVersion
	cfg.APIPath = "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.UserAgent = "kuryr-daemon"
	// A node that starts a hundred pods at once reports a hundred ports. The API server has its
	// own fairness, so the client's small default would only delay them.
	cfg.QPS, cfg.Burst = 50, 100
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the Kubernetes client: %w", err)
	}
	return &API{client: client, node: node}, nil
}

// KuryrPorts lists and watches the node's KuryrPorts.
func (a *API) KuryrPorts() cache.ListerWatcher {
	return cache.NewListWatchFromClient(a.client, "kuryrports", "", fields.OneTermEqualSelector("spec.nodeName", a.node))
}

// Report sets status.attachment of a KuryrPort, or removes it if at is nil, whoever has written it.
func (a *API) Report(ctx context.Context, name string, at *v1.Attachment) error {
	status := map[string]any{"attachment": at}
	if at == nil {
		// To apply a status without fields keeps what another writer wrote, and Kubernetes 1.37 refuses
		// it if nothing else is left there.
		return a.patch(ctx, name, types.MergePatchType, map[string]any{"status": status})
	}
	return a.patch(ctx, name, types.ApplyPatchType, map[string]any{
		"apiVersion": v1.GroupVersion.String(), "kind": "KuryrPort",
		"metadata": map[string]any{"name": name}, "status": status,
	})
}

func (a *API) patch(ctx context.Context, name string, how types.PatchType, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	req := a.client.Patch(how).Resource("kuryrports").Name(name).SubResource("status").
		Param("fieldManager", FieldOwner).Body(data)
	if how == types.ApplyPatchType {
		req = req.Param("force", "true")
	}
	return req.Do(ctx).Error()
}
