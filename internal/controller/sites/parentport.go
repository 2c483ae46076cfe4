// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// parentWorkers is the number of concurrent searches.
const parentWorkers = 4

// ParentPorts finds the ports of nodes that are virtual machines. Each pool of a node has the
// parent port in its key, and the node in an annotation. So a restart needs no request to the SDN.
//
// The SDN is asked once for a node without a pool, apart from the planning. It is asked again if
// the Node shows another machine, by its firmware's ID or its addresses. A new machine gets the old
// machine's Node, unless somebody has deleted that. Until the answer the parent port is unknown.
//
// ParentPorts searches for a node only in three cases: pods wait for it, a pool is to be warmed up,
// or its ports may be on another machine.
type ParentPorts struct {
	client   client.Reader
	sites    *Sites
	hosts    sdn.Hosts // nil: no node can be a virtual machine
	settings *settings.Live
	backoff  outcome.Backoff
	events   events.EventRecorder
	pools    poolPlanner
	gauge    prometheus.Gauge // of waiting pods; gets those that no pool counts
	queue    kube.Queue[ctrl.Request]

	mu          sync.Mutex
	known       map[string]parent        // by node
	searches    map[string]*failedSearch // failed ones, by node
	checks      map[string]portCheck     // by node: the SDN refuses the known port
	waitingPods map[string]int           // by node: pods that wait for the parent port
}

type parent struct {
	node    types.UID
	vifType string // for vlan the port has a trunk
	port    string
	machine string // MachineOf the node then
}

// portCheck is a check whether a machine still has the known port.
type portCheck struct {
	at   time.Time
	open bool // the SDN was not asked yet
}

// failedSearch is what is known of a search that has failed.
type failedSearch struct {
	failure  error
	failures int
	hold     time.Time
	// reported is the reason of the last Event, by UID of a waiting pod or of the node.
	reported map[types.UID]string
}

// Setup adds the controller that searches for parent ports to mgr.
func (r *ParentPorts) Setup(mgr ctrl.Manager) error {
	return builder.TypedControllerManagedBy[ctrl.Request](mgr).Named("parents").
		WithOptions(controller.TypedOptions[ctrl.Request]{
			MaxConcurrentReconciles: parentWorkers, RateLimiter: outcome.Limiter[ctrl.Request](r.backoff), SkipNameValidation: new(true),
		}).
		WatchesRawSource(source.TypedKind(mgr.GetCache(), &corev1.Node{},
			&handler.TypedEnqueueRequestForObject[*corev1.Node]{}, predicate.TypedFuncs[*corev1.Node]{UpdateFunc: NodeMoved})).
		WatchesRawSource(r.queue.Source()).
		Complete(r)
}

// NodeMoved reports whether a part of a Node has changed that a plan depends on.
func NodeMoved(e event.TypedUpdateEvent[*corev1.Node]) bool {
	a, b := e.ObjectOld, e.ObjectNew
	before, _ := kube.NodeTakes(a)
	after, _ := kube.NodeTakes(b)
	return a.UID != b.UID || kube.NodeJoined(a) != kube.NodeJoined(b) || before != after || MachineOf(a) != MachineOf(b) ||
		kube.NodeServer(a) != kube.NodeServer(b) || !maps.Equal(a.Labels, b.Labels)
}

// portOf returns the parent port of a node, if it is known. It sends no request to the SDN: Find
// does.
func (r *ParentPorts) portOf(ctx context.Context, node *corev1.Node, vifType string) (string, bool, error) {
	r.mu.Lock()
	p, ok := r.known[node.Name]
	r.mu.Unlock()
	if ok && p.node == node.UID && p.vifType == vifType {
		if !sameMachine(p.machine, node) {
			return "", false, nil
		}
		if p.machine != MachineOf(node) { // the node reports more now
			r.learn(node, vifType, p.port)
		}
		return p.port, true, nil
	}
	list, err := kube.PoolsOn(ctx, r.client, node.Name)
	if err != nil {
		return "", false, err
	}
	var newest *v1.KuryrPortPool
	for i := range list {
		p := &list[i]
		if p.Spec.Key.ParentPortID == "" || p.Spec.Key.VIFType != vifType || !isOf(p, node) {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp) {
			newest = p
		}
	}
	if newest == nil {
		return "", false, nil
	}
	r.learn(node, vifType, newest.Spec.Key.ParentPortID)
	return newest.Spec.Key.ParentPortID, true, nil
}

// isOf reports whether a pool with the node's name belongs to this Node. An earlier Node of that
// name may have been another machine. A pool without the annotation, as kuryr adopt creates it,
// belongs to the Node if it is not older than the Node.
func isOf(p *v1.KuryrPortPool, node *corev1.Node) bool {
	if uid, ok := p.Annotations[v1.NodeAnnotation]; ok {
		return uid == string(node.UID) && sameMachine(p.Annotations[v1.MachineAnnotation], node)
	}
	return !p.CreationTimestamp.Before(&node.CreationTimestamp)
}

// MachineOf returns a description of the node's machine: the ID in its firmware and its addresses.
// For a virtual machine that ID is the cloud's.
func MachineOf(node *corev1.Node) string {
	return strings.Join(append([]string{node.Status.NodeInfo.SystemUUID}, kube.NodeAddresses(node)...), ",")
}

// sameMachine reports whether a node is still the machine of an earlier description. It must have
// the same ID in its firmware, and one of the addresses. A missing ID or missing addresses prove
// nothing.
func sameMachine(then string, node *corev1.Node) bool {
	was, is := strings.Split(then, ","), strings.Split(MachineOf(node), ",")
	if was[0] != "" && is[0] != "" && !strings.EqualFold(was[0], is[0]) {
		return false
	}
	was, is = was[1:], is[1:]
	return len(was) == 0 || len(is) == 0 || slices.ContainsFunc(was, func(ip string) bool { return slices.Contains(is, ip) })
}

func (r *ParentPorts) learn(node *corev1.Node, vifType, port string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[node.Name] = parent{node.UID, vifType, port, MachineOf(node)}
	delete(r.searches, node.Name)
}

// Find requests a search for the parent port of a node. A failure is reported to the pods that wait
// for the port.
func (r *ParentPorts) Find(node string) {
	r.queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: node}})
}

// ResetBackoff allows all searches at once, whatever failures there were.
func (r *ParentPorts) ResetBackoff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.searches)
}

// count adds a node's waiting pods to the metric while the parent port is unknown: no pool counts
// them.
func (r *ParentPorts) count(node string, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gauge.Add(float64(waiting - r.waitingPods[node]))
	if r.waitingPods[node] = waiting; waiting == 0 {
		delete(r.waitingPods, node)
	}
}

// Gone forgets a deleted node.
func (r *ParentPorts) Gone(node string) {
	r.count(node, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, node)
	delete(r.searches, node)
	delete(r.checks, node)
}

// Recheck requests a new search for a parent port that the SDN refuses: the virtual machine may
// have another port. It does so at most once in Backoff.Rejected.
func (r *ParentPorts) Recheck(node string) {
	now := time.Now()
	r.mu.Lock()
	last, takeCheck := r.checks[node]
	again := !takeCheck || now.Sub(last.at) >= r.backoff.Rejected
	if again {
		r.checks[node] = portCheck{at: now, open: true}
	}
	r.mu.Unlock()
	if again {
		r.Find(node)
	}
}

// takeCheck reports, once for each Recheck, whether a parent port is to be checked.
func (r *ParentPorts) takeCheck(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.checks[node]
	if d.open {
		r.checks[node] = portCheck{at: d.at}
	}
	return d.open
}

// Reconcile searches for the parent port of one node, unless a search has failed a moment ago. It
// reports a failure to the pods that wait for the port.
func (r *ParentPorts) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.sites.On(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.Node == nil {
		r.Gone(req.Name)
		return ctrl.Result{}, nil
	}
	if !s.ParentUnknown {
		r.count(req.Name, 0) // the pool counts them
		if s.Parent != "" && r.takeCheck(req.Name) {
			r.check(ctx, s)
		}
		return ctrl.Result{}, nil
	}
	waiting, ports, err := r.waiting(ctx, req.Name)
	r.count(req.Name, len(waiting))
	if err != nil || len(waiting)+ports == 0 && !s.Warm("") {
		return ctrl.Result{}, err
	}
	h := r.search(req.Name)
	if h == nil || !time.Now().Before(h.hold) {
		port, err := r.ask(ctx, s)
		if err == nil {
			r.keep(ctx, s, port)
			return ctrl.Result{}, nil
		}
		h = r.failed(req.Name, err)
	}
	r.tell(s, h, waiting)
	return ctrl.Result{RequeueAfter: max(time.Until(h.hold), time.Millisecond)}, nil
}

// check compares a known parent port with the SDN. The next Recheck repeats a check that
// failed.
func (r *ParentPorts) check(ctx context.Context, s *Site) {
	port, err := r.ask(ctx, s)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("cannot check the port of a node that is a virtual machine", "node", s.Name, "port", s.Parent, "error", err.Error())
	} else if port != s.Parent {
		r.keep(ctx, s, port)
	}
}

func (r *ParentPorts) keep(ctx context.Context, s *Site, port string) {
	ctrl.LoggerFrom(ctx).Info("found the port of a node that is a virtual machine", "node", s.Name, "port", port)
	r.learn(s.Node, s.Ports.VIFType, port)
	r.count(s.Name, 0)
	r.pools.RequeueNode(ctx, s.Name)
}

func (r *ParentPorts) search(node string) *failedSearch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.searches[node]
}

func (r *ParentPorts) failed(node string, err error) *failedSearch {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.searches[node]
	if h == nil {
		h = &failedSearch{}
		r.searches[node] = h
	}
	h.failures++
	h.failure = err
	h.hold = time.Now().Add(r.backoff.Delay(err, h.failures))
	if errors.Is(err, sdn.ErrNotFound) {
		h.hold = time.Now().Add(r.backoff.Rejected) // a person has to act
	}
	return h
}

func (r *ParentPorts) ask(ctx context.Context, s *Site) (string, error) {
	ips := kube.NodeAddresses(s.Node)
	switch {
	case r.hosts == nil:
		return "", fmt.Errorf("finding the machine of node %s: the SDN knows no machines: %w", s.Name, sdn.ErrInvalid)
	case len(ips) == 0:
		return "", fmt.Errorf("finding the machine of node %s: the node has no InternalIP: %w", s.Name, sdn.ErrNotFound)
	}
	port, err := sdn.ParentPortOfAny(ctx, r.hosts, sdn.Machine{
		SubnetIDs: s.Ports.ParentSubnetIDs, ProjectID: s.Ports.ParentProjectID,
		ServerID: kube.NodeServer(s.Node), Trunk: s.Ports.VIFType == config.VIFTypeVLAN,
	}, ips)
	if err != nil {
		return "", fmt.Errorf("finding the machine of node %s by its address %s: %w", s.Name, strings.Join(ips, " or "), err)
	}
	return port, nil
}

// waiting returns the node's pods that lack a port, and the number of the node's ports.
func (r *ParentPorts) waiting(ctx context.Context, node string) (out []*corev1.Pod, ports int, err error) {
	pods, err := kube.PodsOn(ctx, r.client, node)
	if err != nil {
		return nil, 0, err
	}
	list, err := kube.PortsOn(ctx, r.client, node)
	if err != nil {
		return nil, 0, err
	}
	has := map[v1.Claim]bool{}
	for i := range list {
		has[list[i].Spec.PodRef.Claim()] = true // the claim of a free port is zero
	}
	for i := range pods {
		if pod := &pods[i]; pool.Wants(pod) && !has[v1.Claim{UID: pod.UID, Interface: pool.Interface}] {
			out = append(out, pod)
		}
	}
	return out, len(list), nil
}
