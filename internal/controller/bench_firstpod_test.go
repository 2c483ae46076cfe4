// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// ofANetwork are what Neutron takes on the bed, alone, for what a namespace's first pod needs.
const ofANetwork = `calls:
- {on: network POST /v2.0/networks, latency: 240ms}
- {on: network POST /v2.0/subnets, latency: 280ms}
- {on: "network PUT /v2.0/routers/*/add_router_interface", latency: 1200ms}
- {on: network POST /v2.0/ports, latency: 470ms}
- {on: "network GET /**", latency: 25ms}
`

// BenchmarkFirstPodOfANamespace measures how long the first pod of a namespace waits for its port,
// for which the namespace's network is made, and how many requests that takes. For comparison it sends
// the requests that make network, subnet, router interface and port one after the other. Each number
// is the median of five namespaces.
func BenchmarkFirstPodOfANamespace(b *testing.B) {
	const namespaces = 5
	cloud, backend := newMeasured(b)
	api := cloud.api.(*openstacksim.Cloud)
	external := cloud.make("network", map[string]any{"name": "external", "router:external": true})
	cloud.make("subnet", map[string]any{"network_id": external, "cidr": "192.0.2.0/24", "ip_version": 4})
	router := cloud.make("router", map[string]any{"name": "pods", "external_gateway_info": map[string]any{"network_id": external}})
	pool := cloud.make("subnetpool", map[string]any{"name": "namespaces", "prefixes": []string{"10.200.0.0/16"}, "default_prefixlen": 24})
	as, err := dial.Parse([]byte(ofANetwork))
	if err != nil {
		b.Fatal(err)
	}
	api.SetDials(as)

	var bare, took []time.Duration
	for i := range namespaces {
		began := time.Now()
		network := cloud.make("network", map[string]any{"name": fmt.Sprint("bare-", i)})
		subnet := cloud.make("subnet", map[string]any{"network_id": network, "subnetpool_id": pool, "ip_version": 4})
		if _, err := cloud.ask(http.MethodPut, "/networking/v2.0/routers/"+router+"/add_router_interface", map[string]any{"subnet_id": subnet}, &map[string]any{}); err != nil {
			b.Fatal(err)
		}
		cloud.make("port", map[string]any{"network_id": network, "binding:host_id": "bench-0"})
		bare = append(bare, time.Since(began))
	}

	bed := idleBed(b)
	bed.unhurried, bed.networked, bed.backend = true, true, backend
	node := bed.nodes(1)[0]
	bed.set(func(s *settings.Settings) {
		s.Orphans = config.New().Orphans // its comparisons are not measured
		s.Pods.SubnetIDs, s.Pods.SecurityGroupIDs = []string{cloud.subnet}, []string{cloud.group}
		s.Networks.Mode, s.Networks.RouterID, s.Networks.SubnetPoolIDs = "namespace", router, []string{pool}
	})
	bed.start()
	w := bed.watchArrivals()
	time.Sleep(2 * time.Second) // the start's own requests
	api.Reset()
	for i := range namespaces {
		name := fmt.Sprintf("first-%d-%d", time.Now().UnixNano()%1e9, i)
		bed.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		began := time.Now()
		bed.pod("first", inNamespace(name), func(p *corev1.Pod) { p.Spec.NodeName = node })
		for w.count() <= i {
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(began))
	}
	var reads, writes int
	for _, c := range api.Calls() {
		if c.Method == http.MethodGet {
			reads++
		} else {
			writes++
		}
	}
	slices.Sort(bare)
	slices.Sort(took)
	b.ReportMetric(bare[namespaces/2].Seconds(), "bare-s")
	b.ReportMetric(took[namespaces/2].Seconds(), "ready-s")
	b.ReportMetric(took[namespaces/2].Seconds()/bare[namespaces/2].Seconds(), "ratio")
	b.ReportMetric(float64(writes)/namespaces, "writes")
	b.ReportMetric(float64(reads)/namespaces, "reads")
	b.ReportMetric(0, "ns/op")
}
