// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// release deletes the network of a KuryrNetwork, once nothing is in it, and removes the finalizer.
// It needs no status.
func (v *reconciliation) release(ctx context.Context) (ctrl.Result, error) {
	if !v.objects.Held(v.kn) {
		return ctrl.Result{}, nil
	}
	ports, err := portsWith(ctx, v.client, portNetwork, v.kn.Status.NetworkID)
	if err != nil {
		return ctrl.Result{}, err
	}
	serves := slices.ContainsFunc(ports, func(p *v1.KuryrPort) bool { return p.Spec.PodRef != nil })
	if !serves && kube.Serving(v.kn) { // pods are to know before anything is removed
		if err := v.write(ctx, made(v.kn), v1.ReasonDeleting, leaving, false); err != nil {
			return kube.Retry(err)
		}
		return ctrl.Result{RequeueAfter: stale}, nil
	}
	waits, err := v.remove(ctx)
	if err == nil && waits == "" {
		err = v.removeRouter(ctx)
	}
	if err == nil && waits == "" {
		return kube.Retry(v.objects.Drop(ctx, v.kn))
	}
	return v.reportLeaving(ctx, waits, err, serves)
}

// remove deletes the networks of the KuryrNetwork. It returns what the deletion waits for. A status
// may be empty, or name the network of another KuryrNetwork: owner and name in the cloud decide.
func (v *reconciliation) remove(ctx context.Context) (waits string, err error) {
	if id := v.kn.Status.NetworkID; id != "" {
		waits, err = v.removeOne(ctx, id)
		if !errors.Is(err, errForeign) {
			return waits, err
		}
	}
	all, err := v.listed(ctx, networksList, v.Cloud.ListNetworks)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", v.absent(ctx)
	}
	for _, n := range all {
		if waits, err = v.removeOne(ctx, n.ID); waits != "" || err != nil && !errors.Is(err, errForeign) {
			return waits, err
		}
	}
	return "", nil
}

// removeOne returns errForeign for a network of another KuryrNetwork, and for one that the cloud does
// not show.
func (v *reconciliation) removeOne(ctx context.Context, id string) (waits string, err error) {
	ports, err := portsWith(ctx, v.client, portNetwork, id)
	if err != nil || len(ports) > 0 && v.memory.own == id { // one that waits costs no request
		return describePorts(ports), err
	}
	is, err := v.Cloud.Network(ctx, id)
	switch {
	case errors.Is(err, sdn.ErrNotFound):
		return "", errForeign
	case err != nil:
		return "", fmt.Errorf("reading network %s: %w", id, err)
	case !v.owns(is.Owner, is.Name):
		return "", errForeign
	}
	if v.memory.own = id; len(ports) > 0 {
		return describePorts(ports), nil
	}
	var subnets []string
	for _, s := range is.Subnets {
		subnets = append(subnets, s.ID)
	}
	balancers, err := v.balancersWithMembers(ctx, v.req.Namespace, subnets)
	if err != nil || len(balancers) > 0 {
		return fewOf("load balancers with members in it", balancers), err
	}
	used, err := v.Cloud.InUse(ctx, id)
	if err != nil {
		return "", fmt.Errorf("listing the ports in network %s: %w", id, err)
	}
	if len(used) > 0 { // without its router, they would be cut off
		// A provider may have a port there for the members of another namespace's Service.
		balancers, err := v.balancersWithMembers(ctx, "", subnets)
		return strings.Join(append([]string{describeUses(id, used)}, fewOf("load balancers of other namespaces with members in it", balancers)), ". It has "), err
	}
	if err := v.disconnect(ctx, is); err != nil {
		return "", err
	}
	if err := v.Cloud.DeleteNetwork(ctx, id); err != nil {
		return "", fmt.Errorf("deleting network %s: %w. `openstack port list --network %s` shows what is in it", id, err, id)
	}
	ctrl.LoggerFrom(ctx).Info("deleted network", "network", id)
	return "", nil
}

// balancersWithMembers returns the KuryrLoadBalancers of a namespace, empty: of all, with members in one of these
// subnets. It asks the API server: the kind is in the cache only while Services are served.
func (r *Applier) balancersWithMembers(ctx context.Context, namespace string, subnetIDs []string) (names []string, err error) {
	var list v1.KuryrLoadBalancerList
	err = r.live.List(ctx, &list, client.InNamespace(namespace))
	if kube.NotServed(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing KuryrLoadBalancers of namespace %q: %w", namespace, err)
	}
	for i := range list.Items {
		if slices.ContainsFunc(list.Items[i].Spec.Listeners, func(l v1.ListenerSpec) bool {
			return slices.ContainsFunc(l.Members, func(m v1.MemberSpec) bool { return slices.Contains(subnetIDs, m.SubnetID) })
		}) {
			names = append(names, kube.RequestOf(&list.Items[i]).String())
		}
	}
	return names, nil
}

// disconnect removes the interfaces of routers in the subnets of a network.
func (v *reconciliation) disconnect(ctx context.Context, is sdn.Network) error {
	var at errgroup.Group
	for _, s := range is.Subnets {
		for _, router := range s.RouterIDs {
			at.Go(func() error {
				if err := v.Cloud.RemoveRouterInterface(ctx, router, s.ID); err != nil {
					return fmt.Errorf("removing the interface of router %s in subnet %s (%s): %w. A floating IP of a port there keeps it: `openstack floating ip list --router %s`", router, s.ID, s.Prefix, err, router)
				}
				return nil
			})
		}
	}
	return at.Wait()
}

// describePorts describes the ports that a deletion waits for; empty if there are none.
func describePorts(ports []*v1.KuryrPort) string {
	var pods, others []string
	for _, p := range ports {
		if ref := p.Spec.PodRef; ref != nil {
			pods = append(pods, ref.Namespace+"/"+ref.Name)
		} else {
			others = append(others, p.Name)
		}
	}
	if len(pods) > 0 {
		return fewOf("ports of pods", pods)
	}
	return fewOf("free ports", others)
}

// describeUses names ports in a network, and the command that shows them.
func describeUses(networkID string, used []sdn.PortUse) string {
	var all []string
	for _, u := range used {
		what := cmp.Or(u.DeviceOwner, "no device owner")
		if u.Own {
			what += ", which Kuryr deletes"
		}
		all = append(all, fmt.Sprintf("%s (%s)", u.ID, what))
	}
	return fmt.Sprintf("%s. Whoever has a port there has to delete it: `openstack port list --long --network %s`", fewOf("ports in the cloud", all), networkID)
}

// others names the ports of others in a network that Kuryr has made; empty if there are none. A
// network that is being deleted serves no pods, so its deletion is not to wait for somebody else.
func (p *Planner) others(ctx context.Context, kn *v1.KuryrNetwork) (string, error) {
	if id := kn.Status.NetworkID; id != "" && network.Makes(&kn.Spec) {
		used, err := p.usesOf(ctx, id, itself(kn.Namespace))
		if err != nil {
			return "", err
		}
		if used = slices.DeleteFunc(slices.Clone(used), func(u sdn.PortUse) bool { return u.Own }); len(used) > 0 {
			return describeUses(id, used), nil
		}
	}
	return "", nil
}

// fewOf names some of many; empty if there are none.
func fewOf(what string, all []string) string {
	const few = 5
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	text := fmt.Sprintf("%d %s: %s", len(all), what, strings.Join(all[:min(few, len(all))], ", "))
	if len(all) > few {
		text += ", ..."
	}
	return text
}

const leaving = "The network is deleted once no port is in it."

// reportLeaving writes why a deletion waits. What is usual is not named before it takes long: each
// of many ports would be a write. The network serves new pods of the namespace for as long as pods
// have ports there: some may get theirs while the deletion is on its way.
func (v *reconciliation) reportLeaving(ctx context.Context, waits string, failed error, serves bool) (ctrl.Result, error) {
	reason, text := v1.ReasonDeleting, leaving
	o := outcome.Of(outcome.Network, failed)
	slow := time.Since(v.kn.DeletionTimestamp.Time) >= v.Slow
	switch {
	case failed != nil && o.Reason != v1.ReasonConflict:
		reason, text = o.Reason, o.Explain()
	case slow && failed != nil:
		reason, text = v1.ReasonNetworkInUse, "The deletion of the network waits: "+o.Explain()
	case slow:
		reason, text = v1.ReasonNetworkInUse, "The deletion of the network waits for "+waits+"."
	}
	if err := v.write(ctx, made(v.kn), reason, text, serves); err != nil {
		return kube.Retry(err)
	}
	if failed != nil {
		return v.Backoff.Result(o)
	}
	return ctrl.Result{RequeueAfter: v.Backoff.Max}, nil
}
