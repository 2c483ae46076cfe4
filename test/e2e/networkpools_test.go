// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// BenchmarkNamespacePools measures what free ports in the pools of namespaces' networks
// (networks.minFree) buy and cost: next-s from the creation of a pod until it runs, in a namespace
// that has a pod on that node already; rest-s from a namespace's first pods, one on each node,
// until its network, their ports and the free ones are there; gone-s from the namespace's deletion
// until nothing of it is in the cloud. The median of three namespaces, one after the other.
func BenchmarkNamespacePools(b *testing.B) {
	for _, free := range []int{0, 1, 5} {
		b.Run(fmt.Sprint(free), func(b *testing.B) {
			f := withNetworks(b)
			f.change(b, func(document map[string]any) {
				document["pools"] = map[string]any{"min": 0, "batch": 5, "ttl": "1h", "cooldown": "0s"}
				document["networks"].(map[string]any)["minFree"] = free
			})
			var next, rest, gone []time.Duration
			for round := 0; b.Loop(); round++ {
				for i := range 3 {
					n, r, g := f.namespaceRound(b, fmt.Sprintf("%d-%d", round, i), free)
					next, rest, gone = append(next, n), append(rest, r), append(gone, g)
				}
			}
			for unit, took := range map[string][]time.Duration{"next-s": next, "rest-s": rest, "gone-s": gone} {
				slices.Sort(took)
				b.ReportMetric(took[len(took)/2].Seconds(), unit)
			}
			b.ReportMetric(0, "ns/op") // would mix in what lies between
		})
	}
}

func (f *fixture) namespaceRound(b *testing.B, name string, free int) (next, rest, gone time.Duration) {
	b.Helper()
	own := f.beside(b, name, mode(v1.NetworkNamespace))
	began := time.Now()
	own.pods(b, "a", "b")
	network := own.network(b).Status.NetworkID
	for _, node := range nodes {
		eventually(b, func() error {
			if n := len(own.freeIn(b, node, network)); n < free {
				return fmt.Errorf("%s has %d free ports in the network, want %d", node, n, free)
			}
			return nil
		})
	}
	rest = time.Since(began)
	time.Sleep(3 * time.Second) // the daemons plug the free ports
	began = time.Now()
	own.on(b, nodes[0], "next")
	next = time.Since(began)
	began = time.Now()
	if err := own.deleteNamespace(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := cluster.Until(b.Context(), func() error {
		return errors.Join(own.namespaceGone(b.Context()), f.networksRest(b.Context()))
	}); err != nil {
		b.Fatal(err)
	}
	return next, rest, time.Since(began)
}

// freeIn returns the free ports of a node in one network.
func (f *fixture) freeIn(b *testing.B, node, network string) []string {
	b.Helper()
	var names []string
	var list v1.KuryrPortList
	if err := f.Client.List(b.Context(), &list); err != nil {
		b.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Spec.NodeName == node && p.Spec.NetworkID == network && p.Spec.PodRef == nil && p.Status.Phase == v1.PortAvailable {
			names = append(names, p.Name)
		}
	}
	return names
}
