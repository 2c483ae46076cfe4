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

// parentWorkers is how many machines are looked for at once.
const parentWorkers = 4

// Parents finds the ports of the virtual machines that nodes are. A pool of the
// node remembers its machine's port in its key, and in an annotation which node
// that was, so that a restart asks nobody; the SDN is asked for a node that has no
// pool yet, beside the planning, once. A Node that says of itself what another machine
// would (its firmware's ID, its addresses) is asked for again: a machine made anew finds
// its Node where nobody has deleted it. Up to then it is not known.
//
// It works node by node, and only for those that there is a reason for: pods
// wait there, a pool is to be warmed up, or there are ports that may be another machine's.
type Parents struct {
	client   client.Reader
	hosts    sdn.Hosts // nil: nobody knows
	settings *settings.Live
	backoff  outcome.Backoff
	events   events.EventRecorder
	now      func() time.Time
	found    func(ctx context.Context, node string) // plans the node's pools
	counted  func(pods int)                         // more, or fewer, wait that no pool counts
	wake     kube.Queue[ctrl.Request]

	mu     sync.Mutex
	known  map[string]parent // by node
	hunts  map[string]*hunt  // by node, of those not found
	doubts map[string]doubt  // by node: the SDN refuses the port that is known
	queued map[string]int    // by node: pods that wait for its machine to be found
}

type parent struct {
	node    types.UID
	vifType string // for vlan it is known to have a trunk
	port    string
	machine string // what the node said of its machine then
}

// Doubt is that a machine may have another port than is known.
type doubt struct {
	at   time.Time
	open bool // the SDN has not been asked yet
}

// hunt is a search that has failed.
type hunt struct {
	failure  error
	failures int
	hold     time.Time
	told     map[types.UID]string // reason that waiting pods, and the node, have been told
}

// Options is what Sites needs. All but Hosts have to be given.
type Options struct {
	Client   client.Reader
	Hosts    sdn.Hosts // nil: no node can be a virtual machine
	Settings *settings.Live
	Backoff  outcome.Backoff
	Events   events.EventRecorder
	Found    func(ctx context.Context, node string) // plans the pools of a node whose machine was found
	Counted  func(pods int)                         // is told how many more, or fewer, pods wait for a machine to be found
	Now      func() time.Time
}

// New returns Sites whose Parents are to be added to a manager with Setup.
func New(o Options) *Sites {
	return &Sites{client: o.Client, settings: o.Settings, Parents: &Parents{
		client: o.Client, hosts: o.Hosts, settings: o.Settings, backoff: o.Backoff, events: o.Events, now: o.Now, found: o.Found, counted: o.Counted,
		known: map[string]parent{}, hunts: map[string]*hunt{}, doubts: map[string]doubt{}, queued: map[string]int{},
	}}
}

// Setup has mgr look for machines.
func (r *Parents) Setup(mgr ctrl.Manager) error {
	return builder.TypedControllerManagedBy[ctrl.Request](mgr).Named("parents").
		WithOptions(controller.TypedOptions[ctrl.Request]{
			MaxConcurrentReconciles: parentWorkers, RateLimiter: outcome.Limiter[ctrl.Request](r.backoff), SkipNameValidation: new(true),
		}).
		WatchesRawSource(source.TypedKind(mgr.GetCache(), &corev1.Node{},
			&handler.TypedEnqueueRequestForObject[*corev1.Node]{}, predicate.TypedFuncs[*corev1.Node]{UpdateFunc: NodeMoved})).
		WatchesRawSource(r.wake.Source()).
		Complete(r)
}

// NodeMoved reports whether what a plan looks at has changed.
func NodeMoved(e event.TypedUpdateEvent[*corev1.Node]) bool {
	a, b := e.ObjectOld, e.ObjectNew
	before, _ := kube.NodeTakes(a)
	after, _ := kube.NodeTakes(b)
	return a.UID != b.UID || kube.NodeJoined(a) != kube.NodeJoined(b) || before != after || MachineOf(a) != MachineOf(b) ||
		kube.NodeServer(a) != kube.NodeServer(b) || !maps.Equal(a.Labels, b.Labels)
}

// of returns the port of the machine that node is. It asks nobody: see want.
func (r *Parents) of(ctx context.Context, node *corev1.Node, vifType string) (string, bool, error) {
	r.mu.Lock()
	p, ok := r.known[node.Name]
	r.mu.Unlock()
	if ok && p.node == node.UID && p.vifType == vifType {
		if !sameMachine(p.machine, node) {
			return "", false, nil
		}
		if p.machine != MachineOf(node) { // it says more by now
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

// isOf reports whether a pool of node's name is of this node, and not of one of
// before, which may have been another machine. One that does not say, as it was
// made by kuryr adopt, is if it is not older.
func isOf(p *v1.KuryrPortPool, node *corev1.Node) bool {
	if uid, ok := p.Annotations[v1.NodeAnnotation]; ok {
		return uid == string(node.UID) && sameMachine(p.Annotations[v1.MachineAnnotation], node)
	}
	return !p.CreationTimestamp.Before(&node.CreationTimestamp)
}

// MachineOf is what a node says of its machine: the ID that its firmware has, which for
// a virtual machine is the cloud's, and its addresses.
func MachineOf(node *corev1.Node) string {
	return strings.Join(append([]string{node.Status.NodeInfo.SystemUUID}, kube.NodeAddresses(node)...), ",")
}

// sameMachine reports whether a node is still what it said of its machine then, as far
// as it says anything: of the same firmware, and with one of its addresses.
func sameMachine(then string, node *corev1.Node) bool {
	was, is := strings.Split(then, ","), strings.Split(MachineOf(node), ",")
	if was[0] != "" && is[0] != "" && !strings.EqualFold(was[0], is[0]) {
		return false
	}
	was, is = was[1:], is[1:]
	return len(was) == 0 || len(is) == 0 || slices.ContainsFunc(was, func(ip string) bool { return slices.Contains(is, ip) })
}

func (r *Parents) learn(node *corev1.Node, vifType, port string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[node.Name] = parent{node.UID, vifType, port, MachineOf(node)}
	delete(r.hunts, node.Name)
}

// Want has a node's machine looked for, or those who wait for it told what is
// in the way.
func (r *Parents) Want(node string) {
	r.wake.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: node}})
}

// Forgive lets all be looked for at once, whatever went wrong before.
func (r *Parents) Forgive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.hunts)
}

// count has the metric of waiting pods show those of a node whose machine is not known:
// no pool has them.
func (r *Parents) count(node string, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted(waiting - r.queued[node])
	if r.queued[node] = waiting; waiting == 0 {
		delete(r.queued, node)
	}
}

// Gone forgets a node that is no more.
func (r *Parents) Gone(node string) {
	r.count(node, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, node)
	delete(r.hunts, node)
	delete(r.doubts, node)
}

// Doubt has a machine looked for whose port the SDN does not take any more: a
// virtual machine may have got another. That is done once in a while only.
func (r *Parents) Doubt(node string) {
	now := r.now()
	r.mu.Lock()
	last, doubted := r.doubts[node]
	again := !doubted || now.Sub(last.at) >= r.backoff.Rejected
	if again {
		r.doubts[node] = doubt{at: now, open: true}
	}
	r.mu.Unlock()
	if again {
		r.Want(node)
	}
}

// doubted reports whether a machine is to be looked for again, once.
func (r *Parents) doubted(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.doubts[node]
	if d.open {
		r.doubts[node] = doubt{at: d.at}
	}
	return d.open
}

// Reconcile looks for the machine of one node, unless that failed a moment ago,
// and tells who waits for it how that goes.
func (r *Parents) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := (&Sites{client: r.client, settings: r.settings, Parents: r}).On(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.Node == nil {
		r.Gone(req.Name)
		return ctrl.Result{}, nil
	}
	if !s.Blind {
		r.count(req.Name, 0) // their pool counts them
		if s.Parent != "" && r.doubted(req.Name) {
			r.check(ctx, s)
		}
		return ctrl.Result{}, nil
	}
	waiting, ports, err := r.waiting(ctx, req.Name)
	r.count(req.Name, len(waiting))
	if err != nil || len(waiting)+ports == 0 && !s.Warm("") && !s.Rules.Pools.WarmUp.Namespaces {
		return ctrl.Result{}, err
	}
	h := r.hunt(req.Name)
	if h == nil || !r.now().Before(h.hold) {
		port, err := r.ask(ctx, s)
		if err == nil {
			r.settle(ctx, s, port)
			return ctrl.Result{}, nil
		}
		h = r.failed(req.Name, err)
	}
	r.tell(s, h, waiting)
	return ctrl.Result{RequeueAfter: max(h.hold.Sub(r.now()), time.Millisecond)}, nil
}

// check looks for a machine whose port is known. What fails here is tried again
// with the next doubt.
func (r *Parents) check(ctx context.Context, s *Site) {
	port, err := r.ask(ctx, s)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("the port of the machine that a node is cannot be checked", "node", s.Name, "port", s.Parent, "error", err.Error())
	} else if port != s.Parent {
		r.settle(ctx, s, port)
	}
}

func (r *Parents) settle(ctx context.Context, s *Site, port string) {
	ctrl.LoggerFrom(ctx).Info("found the port of the machine that a node is", "node", s.Name, "port", port)
	r.learn(s.Node, s.Ports.VIFType, port)
	r.count(s.Name, 0)
	r.found(ctx, s.Name)
}

func (r *Parents) hunt(node string) *hunt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hunts[node]
}

func (r *Parents) failed(node string, err error) *hunt {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hunts[node]
	if h == nil {
		h = &hunt{}
		r.hunts[node] = h
	}
	h.failures++
	h.failure = err
	h.hold = r.now().Add(r.backoff.Delay(err, h.failures))
	if errors.Is(err, sdn.ErrNotFound) {
		h.hold = r.now().Add(r.backoff.Rejected) // somebody has to act
	}
	return h
}

func (r *Parents) ask(ctx context.Context, s *Site) (string, error) {
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

// waiting returns the node's pods that are to have a port and have none, and how many
// ports there are.
func (r *Parents) waiting(ctx context.Context, node string) (out []*corev1.Pod, ports int, err error) {
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
		has[list[i].Spec.PodRef.Claim()] = true // of a free one that of no pod
	}
	for i := range pods {
		if pod := &pods[i]; pool.Wants(pod) && !has[v1.Claim{UID: pod.UID, Interface: pool.Interface}] {
			out = append(out, pod)
		}
	}
	return out, len(list), nil
}
