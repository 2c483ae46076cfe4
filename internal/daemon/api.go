// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// FieldOwner is the daemon's field owner in server-side apply.
const FieldOwner = "kuryr-daemon"

const reportTimeout = 10 * time.Second

// API is the Kubernetes API, restricted to one node's KuryrPorts and to what node ports need. It
// needs the right to get, list and watch kuryrports, and to patch kuryrports/status; while Services
// are served, also to list and watch services and endpointslices.
type API struct {
	client, core, discovery rest.Interface
	node                    string
	address                 netip.Addr
}

// Connect prepares requests of a node's daemon. It sends nothing yet.
func Connect(cfg *rest.Config, node string) (*API, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme))
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	client := func(group schema.GroupVersion, path, contentType string) rest.Interface {
		cfg := rest.CopyConfig(cfg)
		cfg.GroupVersion, cfg.APIPath, cfg.NegotiatedSerializer = &group, path, codecs
		cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
		cfg.UserAgent = "kuryr-daemon"
		// A node that starts a hundred pods at once reports a hundred ports. The API server has its
		// own fairness, so the client's small default would only delay them.
		cfg.QPS, cfg.Burst = 50, 100
		c, failed := rest.RESTClientFor(cfg)
		err = errors.Join(err, failed)
		return c
	}
	a := &API{
		node: node, client: client(v1.GroupVersion, "/apis", runtime.ContentTypeJSON),
		core:      client(corev1.SchemeGroupVersion, "/api", runtime.ContentTypeProtobuf),
		discovery: client(discoveryv1.SchemeGroupVersion, "/apis", runtime.ContentTypeProtobuf),
	}
	if at, err := url.Parse(cfg.Host); err == nil {
		a.address, _ = netip.ParseAddr(at.Hostname()) // otherwise the host is a name
	}
	if err != nil {
		return nil, fmt.Errorf("preparing the Kubernetes client: %w", err)
	}
	return a, nil
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

// Services lists and watches Services of all namespaces, also those that Kuryr leaves alone: their
// cluster IPs must not be external IPs.
func (a *API) Services() cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(a.core, "services", metav1.NamespaceAll, func(*metav1.ListOptions) {})
}

// EndpointSlices lists and watches the EndpointSlices of Services that Kuryr serves.
func (a *API) EndpointSlices() cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(a.discovery, "endpointslices", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.LabelSelector = forProxies })
}

// Address is the address of the API; zero if the daemon uses a name.
func (a *API) Address() netip.Addr { return a.address }

// APIServers lists and watches the EndpointSlices of the Service default/kubernetes.
func (a *API) APIServers() cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(a.discovery, "endpointslices", metav1.NamespaceDefault,
		func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=kubernetes" })
}

// forProxies selects the Services for kube-proxy, and so for its replacement.
const forProxies = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService
