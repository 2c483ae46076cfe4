// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plan/network"
)

// namespaceWith returns a namespace with labels, and with annotations by their names without the
// prefix.
func namespaceWith(labels, annotations map[string]string) *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: labels}}
	for name, value := range annotations {
		metav1.SetMetaDataAnnotation(&ns.ObjectMeta, "openstack.org/"+name, value)
	}
	return ns
}

type pairs = map[string]string

// tenants is a configuration with every setting of networks and projects.
func tenants() Settings {
	return Settings{
		Pods:     config.Pods{ProjectID: "common", SubnetIDs: []string{"s0"}, SecurityGroupIDs: []string{"g0"}},
		Services: config.Services{ExternalNetworkID: "x0"},
		Networks: config.Networks{
			NetworkChoice: config.NetworkChoice{
				Mode: "shared", SubnetPoolIDs: []string{"p0"}, Ranges: []string{"10.0.0.0/8", "fd00::/40"}, RouterID: "r0",
				DNSServers: []string{"192.0.2.53"}, Routes: []config.Route{{Destination: "10.96.0.0/12", Gateway: "10.0.0.9"}},
			},
			AllowedModes: []string{"flat"},
			Given: []config.GivenNetwork{
				{Name: "lab", NetworkID: "n1", SubnetIDs: []string{"s1", "s16"}},
				{Name: "vault", SubnetIDs: []string{"s2"}, NamespaceSelector: of("team", "vault")},
			},
			Namespaces: []config.NamespaceNetwork{
				{NamespaceSelector: of("size", "small"), NetworkChoice: config.NetworkChoice{PrefixLength: 26}},
				{NamespaceSelector: of("apart", "yes"), NetworkChoice: config.NetworkChoice{Mode: "namespace", PrefixLength: 24, RouterID: "r1"}},
				{NamespaceSelector: of("apart", "yes"), NetworkChoice: config.NetworkChoice{Mode: "flat", SubnetPoolIDs: []string{"p1"}}},
			},
		},
		Projects: []config.Project{
			{ProjectID: "named", SecurityGroupIDs: []string{"g1"}},
			{ProjectID: "blue", NamespaceSelector: of("team", "blue"), RouterID: "r2", SubnetPoolIDs: []string{"p2"}, ExternalNetworkID: "x2"},
			{ProjectID: "late", NamespaceSelector: of("team", "blue")},
			{ProjectID: "some", AllowedNamespaces: of("team", "some")},
			{ProjectID: "common", NamespaceSelector: of("team", "closed"), SecurityGroupIDs: []string{}},
		},
	}
}

// TestNetwork: the choice of a namespace by configuration, labels and annotations.
func TestNetwork(t *testing.T) {
	made := func(c network.Choice) network.Choice {
		c.DNSServers = []string{"192.0.2.53"}
		c.Routes = []v1.Route{{Destination: "10.96.0.0/12", Gateway: "10.0.0.9"}}
		return with(c)
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/40")}
	for _, tc := range []struct {
		name                string
		labels, annotations pairs
		want                network.Choice
	}{
		{"nothing said", nil, nil, shared(network.Choice{Common: true})},
		{"common project by name, which the list gives no groups", nil, pairs{"kuryr-project": "common"}, shared(network.Choice{SecurityGroupIDs: []string{}})},
		{"first entry that says it", pairs{"apart": "yes", "size": "small"}, nil,
			made(network.Choice{Mode: "namespace", SubnetPoolIDs: []string{"p1"}, PrefixLength: 26, RouterID: "r1"})},
		{"project by selector has its own router and pools", pairs{"apart": "yes", "team": "blue"}, nil,
			made(network.Choice{Mode: "namespace", ProjectID: "blue", SubnetPoolIDs: []string{"p2"}, PrefixLength: 24, RouterID: "r2", ExternalNetworkID: "x2"})},
		{"another project in the common network", pairs{"team": "blue"}, nil, shared(network.Choice{ProjectID: "blue", ExternalNetworkID: "x2"})},
		{"project by name", nil, pairs{"kuryr-project": "named"}, shared(network.Choice{ProjectID: "named", SecurityGroupIDs: []string{"g1"}})},
		{"project that selects it by name", pairs{"team": "blue"}, pairs{"kuryr-project": "blue"},
			shared(network.Choice{ProjectID: "blue", ExternalNetworkID: "x2"})},
		{"second project that selects it by name", pairs{"team": "blue"}, pairs{"kuryr-project": "late"}, shared(network.Choice{ProjectID: "late"})},
		{"project for some by name", pairs{"team": "some"}, pairs{"kuryr-project": "some"}, shared(network.Choice{ProjectID: "some"})},
		{"nobody is in a project for some without its name", pairs{"team": "some"}, nil, shared(network.Choice{Common: true})},
		{"common project with no groups", pairs{"team": "closed"}, nil, shared(network.Choice{SecurityGroupIDs: []string{}})},
		{"allowed mode", pairs{v1.NetworkNowLabel: ""}, pairs{"kuryr-network-mode": "flat"},
			made(network.Choice{Mode: "flat", Ranges: ranges, RouterID: "r0", Now: true})},
		{"mode that it has anyway", pairs{"apart": "yes", v1.NetworkNowLabel: "false"}, pairs{"kuryr-network-mode": "namespace"},
			made(network.Choice{Mode: "namespace", SubnetPoolIDs: []string{"p1"}, PrefixLength: 24, RouterID: "r1"})},
		{"given network for all", nil, pairs{"kuryr-network": "lab", "kuryr-network-mode": "given"},
			with(network.Choice{Mode: "given", NetworkID: "n1", SubnetIDs: []string{"s1", "s16"}})},
		{"given network for some", pairs{"team": "vault"}, pairs{"kuryr-network": "vault"}, with(network.Choice{Mode: "given", SubnetIDs: []string{"s2"}})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := NewRules(tenants()).Network(namespaceWith(tc.labels, tc.annotations))
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("the choice (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRouterOfItsOwn: an existing router and one to make are alternatives, of which the first that is
// said counts.
func TestRouterOfItsOwn(t *testing.T) {
	own := func(id string) *config.Router { return &config.Router{ExternalNetworkID: id} }
	s := tenants()
	s.Networks.RouterID, s.Networks.Router = "", &config.Router{ExternalNetworkID: "x1", SNAT: new(false), Routes: []config.Route{{Destination: "10.96.0.0/12", Gateway: "192.0.2.3"}}}
	s.Networks.Mode = "flat"
	s.Projects[0].Router = own("x3")
	all := &v1.NetworkRouter{ExternalNetworkID: "x1", SNAT: new(false), Routes: []v1.Route{{Destination: "10.96.0.0/12", Gateway: "192.0.2.3"}}}
	for _, tc := range []struct {
		name                string
		labels, annotations pairs
		id                  string
		own                 *v1.NetworkRouter
	}{
		{"that of all", nil, nil, "", all},
		{"an entry with an existing one", pairs{"apart": "yes"}, nil, "r1", nil},
		{"a project with an existing one", pairs{"team": "blue"}, nil, "r2", nil},
		{"a project with its own", pairs{"apart": "yes"}, pairs{"kuryr-project": "named"}, "", &v1.NetworkRouter{ExternalNetworkID: "x3"}},
		{"none in a given network", nil, pairs{"kuryr-network": "lab"}, "", nil},
	} {
		got := NewRules(s).Network(namespaceWith(tc.labels, tc.annotations))
		if diff := cmp.Diff(tc.own, got.Router); diff != "" || got.RouterID != tc.id {
			t.Errorf("%s: router %q, want %q, and its own (-want +got):\n%s", tc.name, got.RouterID, tc.id, diff)
		}
	}
	if with, without := NewRules(s), NewRules(tenants()); !with.RoutersByNamespace || without.RoutersByNamespace {
		t.Errorf("RoutersByNamespace is %t with routers, %t without", with.RoutersByNamespace, without.RoutersByNamespace)
	}
}

// with fills in what a choice of tenants has unless it says something else.
func with(c network.Choice) network.Choice {
	if c.ProjectID == "" {
		c.ProjectID = "common"
	}
	if c.SecurityGroupIDs == nil {
		c.SecurityGroupIDs = []string{"g0"}
	}
	if c.ExternalNetworkID == "" {
		c.ExternalNetworkID = "x0"
	}
	return c
}

func shared(c network.Choice) network.Choice {
	c.Mode, c.SubnetIDs = v1.NetworkShared, []string{"s0"}
	return with(c)
}

// TestNetworkFaults: a wish that is not allowed is a fault. The pods get no network if they would
// be in another project or network than their author wrote.
func TestNetworkFaults(t *testing.T) {
	for _, tc := range []struct {
		name        string
		labels      pairs
		annotations pairs
		mode        v1.NetworkMode
		fault       string // the name of the annotation
		blocked     bool
	}{
		{"unlisted project", nil, pairs{"kuryr-project": "foreign"}, "shared", v1.ProjectAnnotation, true},
		{"project for others", nil, pairs{"kuryr-project": "some"}, "shared", v1.ProjectAnnotation, true},
		{"unlisted network", nil, pairs{"kuryr-network": "foreign"}, "given", v1.NetworkAnnotation, true},
		{"network for others", pairs{"team": "blue"}, pairs{"kuryr-network": "vault"}, "given", v1.NetworkAnnotation, true},
		{"mode that is not allowed", nil, pairs{"kuryr-network-mode": "namespace"}, "shared", v1.NetworkModeAnnotation, false},
		{"unknown mode", pairs{"apart": "yes"}, pairs{"kuryr-network-mode": "Flat"}, "namespace", v1.NetworkModeAnnotation, false},
		{"no network named", nil, pairs{"kuryr-network-mode": "given"}, "shared", v1.NetworkModeAnnotation, false},
		{"network and mode", nil, pairs{"kuryr-network": "lab", "kuryr-network-mode": "flat"}, "given", v1.NetworkModeAnnotation, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := NewRules(tenants()).Network(namespaceWith(tc.labels, tc.annotations))
			if got.Mode != tc.mode || got.Blocked != tc.blocked || len(got.Faults) != 1 {
				t.Fatalf("got mode %s, blocked %v, faults %+v; want %s, %v and one fault", got.Mode, got.Blocked, got.Faults, tc.mode, tc.blocked)
			}
			if got.Blocked && got.Common {
				t.Error("a blocked namespace is Common: its pods would get ports")
			}
			fault := got.Faults[0]
			if want := "metadata.annotations[" + tc.fault + "]"; fault.Field != want || fault.Why == "" {
				t.Errorf("got fault %+v, want one of %s", fault, want)
			}
		})
	}
}

// TestSelectedProjectStays: a namespace that a project selects cannot leave it by an annotation.
func TestSelectedProjectStays(t *testing.T) {
	for _, id := range []string{"", "common", "named", "some", "foreign"} {
		got := NewRules(tenants()).Network(namespaceWith(pairs{"team": "blue"}, pairs{"kuryr-project": id}))
		if got.ProjectID != "blue" || got.ExternalNetworkID != "x2" || got.Common || got.Blocked || len(got.Faults) != 1 || got.Faults[0].Value != id {
			t.Errorf("with annotation %q the choice is %+v, want project blue and one fault", id, got)
		}
	}
}

// TestNetworksByNamespace: a configuration without networks and projects costs nothing. A namespace that
// says nothing is in the common network there, and one that names a project or a network is in none.
func TestNetworksByNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		settings Settings
		want     bool
	}{
		"nothing":               {Settings{}, false},
		"shared everywhere":     {Settings{Networks: config.Networks{NetworkChoice: config.NetworkChoice{Mode: "shared"}, AllowedModes: []string{"shared"}}}, false},
		"other levels":          {Settings{Networks: config.Networks{Namespaces: []config.NamespaceNetwork{{NamespaceSelector: of()}}}}, false},
		"mode of all":           {Settings{Networks: config.Networks{NetworkChoice: config.NetworkChoice{Mode: "namespace"}}}, true},
		"mode of some":          {Settings{Networks: config.Networks{Namespaces: []config.NamespaceNetwork{{NetworkChoice: config.NetworkChoice{Mode: "flat"}}}}}, true},
		"a mode may be chosen":  {Settings{Networks: config.Networks{AllowedModes: []string{"flat"}}}, true},
		"a network is listed":   {Settings{Networks: config.Networks{Given: []config.GivenNetwork{{Name: "lab"}}}}, true},
		"a project is listed":   {Settings{Projects: []config.Project{{ProjectID: "p"}}}, true},
		"a rule by namespace":   {Settings{Pods: config.Pods{SecurityGroups: []config.GroupRule{{NamespaceSelector: of()}}}}, false},
		"an override of levels": {Settings{Pools: config.Pools{Overrides: []config.PoolOverride{{NamespaceSelector: of()}}}}, false},
	} {
		r := NewRules(tc.settings)
		if r.NetworksByNamespace != tc.want {
			t.Errorf("%s: got %v, want %v", name, r.NetworksByNamespace, tc.want)
		}
		if got := r.Network(namespaceWith(nil, nil)); !tc.want && (!got.Common || got.Blocked || len(got.Faults) > 0) {
			t.Errorf("%s: Network() of a namespace that says nothing = %+v, want Common without faults", name, got)
		}
		for _, annotation := range []string{"kuryr-project", "kuryr-network"} {
			if got := r.Network(namespaceWith(nil, pairs{annotation: "foreign"})); got.Common || !got.Blocked || len(got.Faults) != 1 {
				t.Errorf("%s: Network() of a namespace with %s: foreign = %+v, want it blocked with one fault", name, annotation, got)
			}
		}
	}
}
