// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/subnetpools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// Namespaces whose network cannot be as they ask for it: each is told what is wrong, by
// an Event and, where it has a KuryrNetwork, by a condition, and the others go on.
func TestNetworksThatCannotBe(t *testing.T) {
	long(t)
	f := withNetworks(t, mode(v1.NetworkNamespace))
	b := tenantOf("B")
	const nowhere = "00000000000000000000000000000000"
	const noRouter = "00000000-0000-4000-8000-000000000000"
	pool := f.fullPool(t)
	entry := func(name string, fields map[string]any) map[string]any {
		fields["namespaceSelector"] = map[string]any{"matchLabels": map[string]string{"kubernetes.io/metadata.name": f.namespace + "-" + name}}
		return fields
	}
	f.change(t, func(document map[string]any) {
		document["networks"].(map[string]any)["namespaces"] = []any{
			entry("full", map[string]any{"mode": "namespace", "subnetPoolIDs": []string{pool}}),
			entry("overlap", map[string]any{"mode": "flat", "ranges": []string{os.Getenv("POD_CIDR"), "10.96.0.0/16"}}),
			entry("router", map[string]any{"mode": "namespace", "routerID": noRouter}),
		}
	})
	lift := f.noNetworks(t, b.project)

	full, overlap, router := f.beside(t, "full"), f.beside(t, "overlap"), f.beside(t, "router")
	wrong, foreign := f.beside(t, "project", project(nowhere)), f.beside(t, "foreign", chooses(v1.NetworkAnnotation, "foreign"))
	odd, quota := f.beside(t, "odd", chooses(v1.NetworkModeAnnotation, "island")), f.beside(t, "quota", project(b.project), mode(v1.NetworkNamespace))
	for _, bad := range []*fixture{full, overlap, router, wrong, foreign, odd, quota} {
		must(bad.Pod(t.Context(), bad.namespace, "waits", "n1"))(t)
	}
	good := f.pods(t, "a", "b")
	all(t, f.between(good[0], good[1]), f.between(good[1], good[0]))

	for _, c := range []struct {
		f     *fixture
		names string
	}{
		{full, pool}, {overlap, "ranges"}, {router, noRouter}, {quota, "quota"},
	} {
		c.f.networkSays(t, "", "False", c.names)
		c.f.told(t, c.names)
	}
	wrong.told(t, v1.ProjectAnnotation)
	foreign.told(t, v1.NetworkAnnotation)
	odd.told(t, v1.NetworkModeAnnotation)
	wrong.event(t, "waits", v1.ProjectAnnotation)
	foreign.event(t, "waits", v1.NetworkAnnotation)
	full.event(t, "waits", pool)
	odd.running(t, "waits") // where the configuration has it

	lift() // and what waited goes on by itself
	quota.running(t, "waits")
	wrong.annotate(t, v1.ProjectAnnotation, "")
	wrong.running(t, "waits")
}

// fullPool makes a subnet pool that has no prefix left.
func (f *fixture) fullPool(t testing.TB) string {
	t.Helper()
	ctx := t.Context()
	pool := must(subnetpools.Create(ctx, f.Neutron, subnetpools.CreateOpts{
		Name: f.namespace, Prefixes: []string{"10.174.0.0/28"}, DefaultPrefixLen: 28, MinPrefixLen: 28,
	}).Extract())(t)
	network := must(networks.Create(ctx, f.Neutron, networks.CreateOpts{Name: f.namespace}).Extract())(t)
	must(subnets.Create(ctx, f.Neutron, subnets.CreateOpts{NetworkID: network.ID, SubnetPoolID: pool.ID, IPVersion: gophercloud.IPv4}).Extract())(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := networks.Delete(ctx, f.Neutron, network.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
		if err := cluster.Until(ctx, func() error { return subnetpools.Delete(ctx, f.Neutron, pool.ID).ExtractErr() }); err != nil {
			t.Error(err)
		}
	})
	return pool.ID
}

// noNetworks lets a project have no network, until lift.
func (f *fixture) noNetworks(t testing.TB, project string) (lift func()) {
	t.Helper()
	set := func(ctx context.Context, n int) {
		if _, err := quotas.Update(ctx, f.Neutron, project, quotas.UpdateOpts{Network: &n}).Extract(); err != nil {
			t.Errorf("setting the quota of networks of project %s: %v", project, err)
		}
	}
	set(t.Context(), 0)
	lift = func() { set(context.Background(), 100) }
	t.Cleanup(lift)
	return lift
}

// A namespace that is deleted while its network is made leaves nothing.
func TestNamespaceDeletedWhileItsNetworkIsMade(t *testing.T) {
	long(t)
	f := withNetworks(t, mode(v1.NetworkNamespace), func(n *corev1.Namespace) { n.Labels = map[string]string{v1.NetworkNowLabel: ""} })
	eventually(t, func() error {
		if !f.knows(t) {
			return errNotYet
		}
		return nil
	})
	f.ends(t)
}

// A network whose parts are deleted behind Kuryr's back is told of, and made again; and
// a KuryrNetwork whose status is emptied finds what there is.
func TestNetworkDeletedBehindOurBack(t *testing.T) {
	long(t)
	f := withNetworks(t, mode(v1.NetworkNamespace), func(n *corev1.Namespace) { n.Labels = map[string]string{v1.NetworkNowLabel: ""} })
	before := f.network(t)
	f.emptiesStatus(t)
	if now := f.network(t); now.Status.NetworkID != before.Status.NetworkID || now.Status.Subnets[0] != before.Status.Subnets[0] {
		t.Errorf("after its status was emptied KuryrNetwork %s has %+v, want %+v", now.Name, now.Status, before.Status)
	}
	subnet := before.Status.Subnets[0].ID
	must(routers.RemoveInterface(t.Context(), f.Neutron, os.Getenv("ROUTER"), routers.RemoveInterfaceOpts{SubnetID: subnet}).Extract())(t)
	if err := networks.Delete(t.Context(), f.Neutron, before.Status.NetworkID).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	f.kill(t, f.controller(t).Spec.NodeName, "controller") // which looks at its start, and not only now and then
	eventually(t, func() error {
		if now := f.network(t); now.Status.NetworkID == before.Status.NetworkID {
			return errNotYet
		}
		return nil
	})
	f.isMade(t, f.network(t), v1.NetworkNamespace, families("NAMESPACE_POOL_CIDR"), os.Getenv("ROUTER"), os.Getenv("PROJECT"))
	pods := f.pods(t, "a", "b")
	all(t, f.between(pods[0], pods[1]))
}

// emptiesStatus takes all away that a KuryrNetwork knows of the cloud.
func (f *fixture) emptiesStatus(t testing.TB) {
	t.Helper()
	kns := &v1.KuryrNetwork{}
	kns.Namespace, kns.Name = f.namespace, f.namespace
	if err := f.Client.Status().Patch(t.Context(), kns, client.RawPatch("application/merge-patch+json", []byte(`{"status": null}`))); err != nil {
		t.Fatal(err)
	}
}
