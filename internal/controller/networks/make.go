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
	"sync"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// errMissing: somebody has deleted what pods have ports in.
var errMissing = errors.New("pods have ports in what somebody has deleted")

// owner is the owner of all resources of a KuryrNetwork.
func (v *reconciliation) owner() sdn.Owner {
	return sdn.Owner{Kind: sdn.KindNetwork, Namespace: v.req.Namespace, Name: v.req.Name}
}

// errForeign: a network belongs to another KuryrNetwork, or to an earlier one of this name.
var errForeign = errors.New("the network is not that of the KuryrNetwork")

// owns reports whether a network of the cloud is that of the KuryrNetwork, by owner and name. A
// status is no proof: people can edit and restore it.
func (v *reconciliation) owns(owner sdn.Owner, name string) bool {
	return owner == v.owner() && name == sdn.NetworkName(v.kn.Spec.NamespaceUID, v.req.Namespace)
}

// apply makes what a KuryrNetwork lacks, and reports.
func (v *reconciliation) apply(ctx context.Context) (ctrl.Result, error) {
	spec := &v.kn.Spec
	if network.Makes(spec) && len(spec.Subnets) == 0 && !v.objects.Held(v.kn) {
		text := "No network is made: condition " + v1.ConditionPlanned + " says why." // the event of the new spec follows
		return kube.Retry(v.write(ctx, v1.KuryrNetworkStatus{}, v1.ReasonNotPlanned, text, false))
	}
	if network.Makes(spec) && !v.objects.Held(v.kn) {
		if err := v.objects.Hold(ctx, v.kn); err != nil || !v.objects.Held(v.kn) {
			return kube.Retry(err) // not held: it is gone
		}
		v.memory.fresh = v.kn.Status.NetworkID == "" && v.kn.Status.RouterID == ""
	}
	if atRest(v.kn) && !v.checking && v.Statuses.IsVerified(v.kn) {
		return ctrl.Result{}, nil
	}
	if !network.Makes(spec) {
		status, err := v.given(ctx)
		if err == nil {
			v.Statuses.MarkVerified(v.kn, &status)
		}
		return v.report(ctx, status, err)
	}
	is, own, err := v.lookAtAll(ctx)
	if err != nil {
		return v.report(ctx, made(v.kn), err)
	}
	is, router, err := v.make(ctx, is, own)
	status := network.Status(spec, is, router)
	if err != nil && is.ID == v.kn.Status.NetworkID && router.Outside == nil { // the router was perhaps not asked
		status.NodeRoutes = v.kn.Status.NodeRoutes
	}
	v.Statuses.MarkVerified(v.kn, &status)
	return v.report(ctx, status, err)
}

// given reads an existing network.
func (v *reconciliation) given(ctx context.Context) (v1.KuryrNetworkStatus, error) {
	spec := &v.kn.Spec
	id := spec.NetworkID
	if id == "" && len(spec.SubnetIDs) > 0 {
		subnet, err := v.Subnets.Subnet(ctx, spec.SubnetIDs[0])
		if errors.Is(err, sdn.ErrNotFound) {
			err = &sdn.InvalidError{Field: sdn.FieldSubnet, Value: spec.SubnetIDs[0], Err: err}
		}
		if err != nil {
			return made(v.kn), fmt.Errorf("reading subnet %s: %w", spec.SubnetIDs[0], err)
		}
		id = subnet.NetworkID
	}
	is, err := v.Cloud.GivenNetwork(ctx, id, spec.SubnetIDs)
	if err != nil {
		return made(v.kn), fmt.Errorf("reading network %s: %w", id, err)
	}
	if v.Settings.Rules().HasCredential(spec.ProjectID) { // it makes the ports in there
		if err := v.Visibility.Sees(ctx, spec.ProjectID, id); err != nil {
			return made(v.kn), fmt.Errorf("network %s for ports of project %s: %w", id, spec.ProjectID, err)
		}
	}
	return network.GivenStatus(spec, is), nil
}

// look returns the network that the cloud has for the KuryrNetwork; without an ID if there is none.
func (v *reconciliation) look(ctx context.Context) (sdn.Network, error) {
	if id := v.kn.Status.NetworkID; id != "" {
		is, err := v.Cloud.Network(ctx, id)
		switch {
		case err == nil && v.owns(is.Owner, is.Name):
			return is, v.lost(ctx, is)
		case err == nil: // that of another KuryrNetwork
		case !errors.Is(err, sdn.ErrNotFound):
			return sdn.Network{}, fmt.Errorf("reading network %s: %w", id, err)
		default:
			if err := v.gone(ctx, id); err != nil {
				return sdn.Network{}, err
			}
		}
	}
	all, err := v.listed(ctx, networksList, v.Cloud.ListNetworks)
	if err != nil {
		return sdn.Network{}, err
	}
	if len(all) == 0 {
		return sdn.Network{}, v.absent(ctx)
	}
	is, err := v.Cloud.Network(ctx, all[0].ID)
	if err != nil {
		return sdn.Network{}, fmt.Errorf("reading network %s: %w", all[0].ID, err)
	}
	return is, nil
}

// The keys of Applier.lists.
const (
	networksList = "networks"
	routersList  = "routers"
)

// listed returns the networks or the routers that have the owner and the name of the KuryrNetwork, the
// oldest first. The oldest counts, and the collector deletes the others.
func (v *reconciliation) listed(ctx context.Context, what string, list func(context.Context) ([]sdn.NetworkSummary, error)) ([]sdn.NetworkSummary, error) {
	all, err := v.lists.Get(ctx, what, 0, list)
	if err := sdn.ErrorIn(v.kn.Spec.ProjectID, err); err != nil {
		return nil, fmt.Errorf("listing %s: %w", what, err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s sdn.NetworkSummary) bool { return !v.owns(s.Owner, s.Name) })
	slices.SortFunc(all, func(a, b sdn.NetworkSummary) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// forgetList has the next reconciliation ask for a list, as one that is on its way may lack what was just made.
func (r *Applier) forgetList(what string) {
	r.lists.Forget(func(key string, _ []sdn.NetworkSummary) bool { return key == what })
}

// absent returns nil if a network of the KuryrNetwork that the cloud does not show is not there.
// Neutron answers "not found", and lists nothing, also for what the credential may not see: because
// of a policy, or as it is for another project or region. So the cloud has to show the network of
// pods.subnetIDs. It is there while Kuryr serves pods, also when the namespace's project is not.
func (v *reconciliation) absent(ctx context.Context) error {
	if v.memory.fresh {
		return nil
	}
	id := v.Settings.Load().Pods.SubnetIDs[0]
	subnet, err := v.Subnets.Subnet(ctx, id)
	if errors.Is(err, sdn.ErrNotFound) {
		return fmt.Errorf("%w: the cloud shows neither the network of the namespace nor subnet %s of pods.subnetIDs, so it may hide both", sdn.ErrForbidden, id)
	}
	if err != nil {
		return fmt.Errorf("reading subnet %s: %w", id, err)
	}
	err = v.Visibility.Sees(ctx, "", subnet.NetworkID)
	if project := v.kn.Spec.ProjectID; err == nil && project != "" {
		err = v.Visibility.Sees(ctx, project, "") // its own credential need not see the common network
	}
	if err != nil {
		return fmt.Errorf("the cloud does not show the network of the namespace, and may hide it: %w", err)
	}
	return nil
}

// gone returns an error unless a network that the cloud does not show may be made again: the
// credential would see it, and no port needs it.
func (v *reconciliation) gone(ctx context.Context, id string) error {
	if err := v.absent(ctx); err != nil {
		return fmt.Errorf("looking for network %s: %w", id, err)
	}
	ports, err := portsWith(ctx, v.client, portNetwork, id)
	if err == nil && len(ports) > 0 {
		err = fmt.Errorf("network %s is not in the cloud any more: %w: %d ports. Delete all pods of the namespace; Kuryr then makes the network again", id, errMissing, len(ports))
	}
	return err
}

// lost returns an error if the network lacks a subnet that ports have addresses of.
func (v *reconciliation) lost(ctx context.Context, is sdn.Network) error {
	for _, s := range v.kn.Status.Subnets {
		if slices.ContainsFunc(is.Subnets, func(o sdn.OwnSubnet) bool { return o.ID == s.ID }) {
			continue
		}
		ports, err := portsWith(ctx, v.client, portNetwork, is.ID)
		if err != nil {
			return err
		}
		ports = slices.DeleteFunc(ports, func(p *v1.KuryrPort) bool {
			return !slices.ContainsFunc(p.Spec.VIF.Addresses, func(a v1.Address) bool { return a.SubnetID == s.ID })
		})
		if len(ports) > 0 {
			return fmt.Errorf("subnet %s (%s) is not in the cloud any more: %w: %d ports. Delete all pods of the namespace; Kuryr then makes the subnet again", s.ID, s.CIDR, errMissing, len(ports))
		}
	}
	return nil
}

// make makes what is missing: the network, then its subnets and a router of its own at once, then
// the router interfaces at once. It returns what there is, also if it fails.
func (v *reconciliation) make(ctx context.Context, is sdn.Network, own sdn.OwnRouter) (sdn.Network, network.Router, error) {
	spec, namespace := &v.kn.Spec, v.req.Namespace
	router := v.routerOf(own)
	work := network.Missing(namespace, spec, is, router.ID)
	if work.Create != nil {
		v.memory.fresh = false // the answer may be lost
		created, err := v.Cloud.CreateNetwork(ctx, v.owner(), *work.Create)
		v.forgetList(networksList)
		if err != nil {
			return is, router, fmt.Errorf("creating the network of namespace %s: %w", namespace, err)
		}
		ctrl.LoggerFrom(ctx).Info("created network", "network", created.ID, "project", spec.ProjectID)
		is = created
		work = network.Missing(namespace, spec, is, router.ID)
	}
	is, router, err := v.fill(ctx, is, own, work)
	if err != nil {
		return is, router, err
	}
	is, err = v.connect(ctx, is, router.ID, network.Missing(namespace, spec, is, router.ID).RouterInterfaces)
	return is, router, err
}

// fill makes subnets and changes them. Meanwhile it makes the router, or asks for the addresses of an
// existing one.
func (v *reconciliation) fill(ctx context.Context, is sdn.Network, own sdn.OwnRouter, work network.Work) (_ sdn.Network, router network.Router, _ error) {
	var mu sync.Mutex
	var at errgroup.Group
	id := is.ID
	for _, s := range work.Subnets {
		at.Go(func() error {
			created, err := v.Cloud.CreateSubnet(ctx, v.owner(), s)
			if err != nil {
				from := "from subnet pool " + s.PoolID // as the author of the setting knows it
				if s.Prefix.IsValid() {
					from = "with prefix " + s.Prefix.String()
				}
				return fmt.Errorf("creating an IPv%d subnet %s of network %s: %w", s.IPVersion, from, id, err)
			}
			ctrl.LoggerFrom(ctx).Info("created subnet", "network", id, "subnet", created.ID, "cidr", created.Prefix.String())
			mu.Lock()
			defer mu.Unlock()
			is.Subnets = append(is.Subnets, created)
			return nil
		})
	}
	for subnet, update := range work.Updates {
		at.Go(func() error {
			if err := v.Cloud.UpdateSubnet(ctx, subnet, update); err != nil {
				return fmt.Errorf("changing DNS servers and routes of subnet %s: %w", subnet, err)
			}
			return nil
		})
	}
	at.Go(func() (err error) {
		router, err = v.router(ctx, own)
		return err
	})
	err := at.Wait()
	slices.SortFunc(is.Subnets, sdn.CompareSubnets)
	return is, router, err
}

// connect gives the router an interface in each of these subnets.
func (v *reconciliation) connect(ctx context.Context, is sdn.Network, router string, subnets []string) (sdn.Network, error) {
	is.Subnets = slices.Clone(is.Subnets)
	var at errgroup.Group
	for i := range is.Subnets {
		subnet := &is.Subnets[i]
		if slices.Contains(subnets, subnet.ID) {
			at.Go(func() error {
				if err := v.Cloud.AddRouterInterface(ctx, router, subnet.ID); err != nil {
					return fmt.Errorf("connecting subnet %s (%s) to router %s: %w", subnet.ID, subnet.Prefix, router, err)
				}
				subnet.RouterIDs = append(slices.Clone(subnet.RouterIDs), router)
				return nil
			})
		}
	}
	err := at.Wait()
	return is, err
}
