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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
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
	Options
	sites    *Sites
	notices  *notices
	queue    kube.Queue[search]
	known    sdn.Answers[string, parent] // of all three the key is the name of the node
	searches sdn.Answers[string, parent] // while the port is not known
	checks   sdn.Answers[string, parent] // while the SDN refuses the known port
}

// search asks for the parent port of a node, if it is not known.
type search struct {
	node  string
	check bool // the known port is compared with the SDN
}

type parent struct {
	node    types.UID
	vifType string // for vlan the port has a trunk
	port    string
	machine string // MachineOf the node then
}

// Setup adds the controller that searches for parent ports to mgr.
func (r *ParentPorts) Setup(mgr ctrl.Manager) error {
	ofNode := func(_ context.Context, node *corev1.Node) []search { return []search{{node: node.Name}} }
	return builder.TypedControllerManagedBy[search](mgr).Named("parents").
		WithOptions(outcome.Options[search](parentWorkers, r.Backoff)).
		WatchesRawSource(source.TypedKind(mgr.GetCache(), &corev1.Node{},
			handler.TypedEnqueueRequestsFromMapFunc(ofNode), predicate.TypedFuncs[*corev1.Node]{UpdateFunc: NodeMoved})).
		WatchesRawSource(r.queue.Source()).
		WatchesRawSource(kube.Gained(r.Shards, keyOf, r.all)).
		Complete(kube.Sharded(r.Shards, keyOf, r))
}

// keyOf returns the key of a search: its node.
func keyOf(_ context.Context, s search) (kube.Key, bool) { return kube.OnNode(s.node), true }

// all returns a search for each node.
func (r *ParentPorts) all(ctx context.Context) ([]search, error) {
	var list corev1.NodeList
	if err := r.Client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	out := make([]search, len(list.Items))
	for i := range list.Items {
		out[i].node = list.Items[i].Name
	}
	return out, nil
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
	p, _, _ := r.known.Fresh(node.Name)
	if p.node == node.UID && p.vifType == vifType {
		if !sameMachine(p.machine, node) {
			return "", false, nil
		}
		if p.machine != MachineOf(node) { // the node reports more now
			r.learn(node, vifType, p.port)
		}
		return p.port, true, nil
	}
	list, err := kube.PoolsOn(ctx, r.Client, node.Name)
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

// learn keeps the parent port of a node, with the machine that the node is now.
func (r *ParentPorts) learn(node *corev1.Node, vifType, port string) {
	r.known.Keep(node.Name, parent{node.UID, vifType, port, MachineOf(node)}, sdn.Always)
}

// Find requests a search for the parent port of a node. A failure is reported to the pods that wait
// for the port.
func (r *ParentPorts) Find(node string) { r.queue.Add(search{node: node}) }

// Recheck requests a new search for a parent port that the SDN refuses: the virtual machine may
// have another port. The SDN is asked at most once in Backoff.Rejected.
func (r *ParentPorts) Recheck(node string) { r.queue.Add(search{node, true}) }

// ResetBackoff allows all searches at once, whatever failures there were, and all Events again.
func (r *ParentPorts) ResetBackoff() {
	r.searches.ForgetErrors()
	r.notices.again()
}

// Gone forgets a deleted node.
func (r *ParentPorts) Gone(node string) { r.forget(func(of string) bool { return of == node }) }

// forget forgets some nodes.
func (r *ParentPorts) forget(which func(node string) bool) {
	for _, node := range r.notices.keys() {
		if which(node) {
			r.notices.forget(node)
		}
	}
	for _, known := range []*sdn.Answers[string, parent]{&r.known, &r.searches, &r.checks} {
		known.Forget(func(of string, _ parent) bool { return which(of) })
	}
}

// Reconcile searches for the parent port of one node, unless a search has failed a moment ago. It
// reports a failure to the pods that wait for the port.
func (r *ParentPorts) Reconcile(ctx context.Context, req search) (ctrl.Result, error) {
	s, err := r.sites.On(ctx, req.node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.Node == nil {
		r.Gone(req.node)
		return ctrl.Result{}, nil
	}
	if !s.ParentUnknown {
		r.notices.forget(req.node) // its pools count its pods
		if s.Parent != "" && req.check {
			r.check(ctx, s)
		}
		return ctrl.Result{}, nil
	}
	pods, err := kube.PodsOn(ctx, r.Client, req.node)
	if err != nil {
		return ctrl.Result{}, err
	}
	ports, err := kube.PortsOn(ctx, r.Client, req.node)
	if err != nil {
		return ctrl.Result{}, err
	}
	waiting := withoutPort(pods, ports)
	if len(waiting)+len(ports) == 0 && !s.Warm("") {
		r.notices.forget(req.node)
		return ctrl.Result{}, nil
	}
	r.notices.count(req.node, len(waiting))
	is, err := r.searches.Get(ctx, req.node, 0, func(ctx context.Context) (parent, error) { return r.ask(ctx, s) })
	if err != nil {
		r.tell(s, err, waiting)
		return ctrl.Result{RequeueAfter: r.pause(err, 1)}, nil
	}
	r.keep(ctx, s, is)
	return ctrl.Result{}, nil
}

// pause returns how long the failure of a search counts.
func (r *ParentPorts) pause(err error, failures int) time.Duration {
	if errors.Is(err, sdn.ErrNotFound) {
		return r.Backoff.Rejected // a person has to act
	}
	return r.Backoff.Delay(err, failures)
}

// check compares a known parent port with the SDN. A later Recheck repeats a check that failed.
func (r *ParentPorts) check(ctx context.Context, s *Site) {
	is, err := r.checks.Get(ctx, s.Name, r.Backoff.Rejected, func(ctx context.Context) (parent, error) { return r.ask(ctx, s) })
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("cannot check the port of a node that is a virtual machine", "node", s.Name, "port", s.Parent, "error", err.Error())
	} else if is.port != s.Parent && is.node == s.Node.UID && is.vifType == s.Ports.VIFType && sameMachine(is.machine, s.Node) {
		r.keep(ctx, s, is)
	}
}

// keep keeps a parent port that was found, and has the pools of the node planned.
func (r *ParentPorts) keep(ctx context.Context, s *Site, is parent) {
	ctrl.LoggerFrom(ctx).Info("found the port of a node that is a virtual machine", "node", s.Name, "port", is.port)
	r.known.Keep(s.Name, is, sdn.Always)
	r.notices.forget(s.Name)
	r.Pools.RequeueNode(ctx, s.Name)
}

// ask asks the SDN for the port with one of the node's addresses.
func (r *ParentPorts) ask(ctx context.Context, s *Site) (parent, error) {
	ips := kube.NodeAddresses(s.Node)
	switch {
	case r.Hosts == nil:
		return parent{}, fmt.Errorf("finding the machine of node %s: the SDN knows no machines: %w", s.Name, sdn.ErrInvalid)
	case len(ips) == 0:
		return parent{}, fmt.Errorf("finding the machine of node %s: the node has no InternalIP: %w", s.Name, sdn.ErrNotFound)
	}
	port, err := sdn.ParentPortOfAny(ctx, r.Hosts, sdn.Machine{
		SubnetIDs: s.Ports.ParentSubnetIDs, ProjectID: s.Ports.ParentProjectID,
		ServerID: kube.NodeServer(s.Node), Trunk: s.Ports.VIFType == config.VIFTypeVLAN,
	}, ips)
	if err != nil {
		return parent{}, fmt.Errorf("finding the machine of node %s by its address %s: %w", s.Name, strings.Join(ips, " or "), err)
	}
	return parent{s.Node.UID, s.Ports.VIFType, port, MachineOf(s.Node)}, nil
}
