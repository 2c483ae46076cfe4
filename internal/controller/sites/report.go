// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// notices are the pods that wait and that no pool counts, by what they wait for: the network of a
// namespace, or the parent port of a node. It may be lost: then Events are repeated once. Its methods
// are safe for concurrent use.
type notices struct {
	gauge prometheus.Gauge // of waiting pods

	mu      sync.Mutex
	waiting map[string]*notice
}

// notice is what pods were told.
type notice struct {
	pods     int // that wait
	since    time.Time
	reported map[types.UID]string // reason of the last Event, by UID
}

// of returns what is known of those who wait for key. n.mu is held.
func (n *notices) of(key string) *notice {
	if n.waiting[key] == nil {
		n.waiting[key] = &notice{since: time.Now()}
	}
	return n.waiting[key]
}

// count notes how many pods wait, and returns since when some do.
func (n *notices) count(key string, pods int) (since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.of(key)
	n.gauge.Add(float64(pods - w.pods))
	w.pods = pods
	return w.since
}

// forget notes that no pod waits any more, or that the pods' pools count them.
func (n *notices) forget(key string) {
	n.count(key, 0)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.waiting, key)
}

// news returns which of these objects have not been told of a reason, and notes that they are. It
// forgets other objects.
func (n *notices) news(key, reason string, uids []types.UID) map[types.UID]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.of(key)
	news, reported := map[types.UID]bool{}, map[types.UID]string{}
	for _, uid := range uids {
		news[uid], reported[uid] = w.reported[uid] != reason, reason
	}
	w.reported = reported
	return news
}

// again lets all Events be written again.
func (n *notices) again() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.waiting {
		w.reported = nil
	}
}

// keys returns what pods wait for.
func (n *notices) keys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.waiting))
}

// withoutPort returns those of these pods that want a port and have none of these.
func withoutPort(pods []corev1.Pod, ports []v1.KuryrPort) (out []*corev1.Pod) {
	has := map[v1.Claim]bool{}
	for i := range ports {
		has[ports[i].Spec.PodRef.Claim()] = true // the claim of a free port is zero
	}
	for i := range pods {
		if pod := &pods[i]; pool.Wants(pod) && !has[v1.Claim{UID: pod.UID, Interface: pool.Interface}] {
			out = append(out, pod)
		}
	}
	return out
}

func uids(pods []*corev1.Pod) []types.UID {
	out := make([]types.UID, 0, len(pods)+1)
	for _, p := range pods {
		out = append(out, p.UID)
	}
	return out
}

// tell sends an Event on the node and on each waiting pod. The Event says why the parent port is
// not known. It is sent once for each reason.
func (r *ParentPorts) tell(s *Site, failure error, waiting []*corev1.Pod) {
	note, reason := explain(failure, s.Ports), outcome.Of(outcome.ParentPort, failure).Reason
	news := r.notices.news(s.Name, reason, append(uids(waiting), s.Node.UID))
	if news[s.Node.UID] {
		on := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.Name, UID: s.Node.UID}
		r.Events.Eventf(on, nil, corev1.EventTypeWarning, v1.ReasonParentPortUnknown, "FindParentPort", "Its pods get no ports: %s", note)
	}
	for _, pod := range waiting {
		if news[pod.UID] {
			r.Events.Eventf(kube.Reference(pod, "Pod"), nil, corev1.EventTypeWarning, v1.ReasonParentPortUnknown, "FindParentPort",
				"The pod waits for a port: %s", note)
		}
	}
}

// projectOf names the project in which a parent port is looked for.
func projectOf(ports config.NodePorts) string {
	if ports.ParentProjectID == "" {
		return "that credential's own project, as nodes[].parentProjectID names none"
	}
	return "project " + ports.ParentProjectID
}

// explain describes for a person why a parent port is not known.
func explain(err error, ports config.NodePorts) string {
	var within, trunk string
	if len(ports.ParentSubnetIDs) > 0 {
		within = " in subnet " + strings.Join(ports.ParentSubnetIDs, " or ")
	}
	if ports.VIFType == config.VIFTypeVLAN {
		trunk = " that is the parent of a trunk"
	}
	return outcome.Cut(outcome.Of(outcome.ParentPort, err).Explain(
		"{vifType}", ports.VIFType, "{within}", within, "{trunk}", trunk, "{project}", projectOf(ports)))
}
