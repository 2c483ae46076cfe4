// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Services is the Kubernetes API, restricted to what node ports need. It needs the right to list
// and watch services and endpointslices.
type Services struct {
	core, discovery rest.Interface
	address         netip.Addr
}

// ConnectServices prepares requests for Services. It sends nothing yet.
func ConnectServices(cfg *rest.Config) (*Services, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	cfg.UserAgent = "kuryr-daemon"
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the Kubernetes client: %w", err)
	}
	discovery, err := discoveryv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the Kubernetes client: %w", err)
	}
	s := &Services{core: core.RESTClient(), discovery: discovery.RESTClient()}
	if at, err := url.Parse(cfg.Host); err == nil {
		s.address, _ = netip.ParseAddr(at.Hostname()) // otherwise the host is a name
	}
	return s, nil
}

// Services lists and watches Services of all namespaces, also those that Kuryr leaves alone: their
// cluster IPs must not be external IPs.
func (s *Services) Services() cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(s.core, "services", metav1.NamespaceAll, func(*metav1.ListOptions) {})
}

// EndpointSlices lists and watches the EndpointSlices of Services that Kuryr serves.
func (s *Services) EndpointSlices() cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(s.discovery, "endpointslices", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.LabelSelector = forProxies })
}

// Address is the address of the API; zero if the daemon uses a name.
func (s *Services) Address() netip.Addr { return s.address }

// APIServers lists and watches the EndpointSlices of the Service default/kubernetes.
func (s *Services) APIServers() cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(s.discovery, "endpointslices", metav1.NamespaceDefault,
		func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=kubernetes" })
}

// forProxies selects the Services for kube-proxy, and so for its replacement.
const forProxies = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService
