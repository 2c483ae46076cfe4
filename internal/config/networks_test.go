// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr-go/kuryr/internal/config"
)

func TestNetworksAreRead(t *testing.T) {
	got := parse(t, minimal+`
nodes: [{nodeSelector: {}, subnetIDs: [`+subnet6+`]}]
networks:
  mode: namespace
  subnetPoolIDs: [`+subnet+`, `+subnet6+`]
  allowedModes: [shared, flat]
  ranges: [10.0.0.0/8, "fd00:10::/48"]
  given: [{name: storage, subnetIDs: [`+subnet+`]}]
  namespaces:
    - {namespaceSelector: {}, prefixLengthIPv6: 56, routes: [{destination: "::/0", gateway: "fd00::1"}]}
projects: [{projectID: blue, cloud: blue-cloud, securityGroupIDs: [], allowedNamespaces: {matchLabels: {tenant: blue}}}]
`)
	want := config.New()
	want.Pods.SubnetIDs = []string{subnet}
	want.Nodes = []config.NodePorts{{NodeSelector: &metav1.LabelSelector{}, SubnetIDs: []string{subnet6}}}
	want.Networks = config.Networks{
		NetworkChoice: config.NetworkChoice{
			Mode: "namespace", SubnetPoolIDs: []string{subnet, subnet6}, Ranges: []string{"10.0.0.0/8", "fd00:10::/48"},
		},
		AllowedModes: []string{"shared", "flat"}, MinFree: 1,
		Given: []config.GivenNetwork{{Name: "storage", SubnetIDs: []string{subnet}}},
		Namespaces: []config.NamespaceNetwork{{
			NamespaceSelector: &metav1.LabelSelector{},
			NetworkChoice:     config.NetworkChoice{PrefixLengthIPv6: 56, Routes: []config.Route{{Destination: "::/0", Gateway: "fd00::1"}}},
		}},
	}
	want.Projects = []config.Project{{ProjectID: "blue", Cloud: "blue-cloud", SecurityGroupIDs: []string{}, AllowedNamespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "blue"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What modes namespace and flat are made of may come from other places than networks itself.
func TestSourcesOfModes(t *testing.T) {
	const pools = "subnetPoolIDs: [" + subnet + "]"
	for name, text := range map[string]string{
		"pools of all projects":      "networks: {mode: namespace}\nprojects: [{projectID: a, " + pools + "}, {projectID: b, " + pools + "}]\n",
		"pools of an entry for all":  "networks: {mode: namespace, namespaces: [{namespaceSelector: {}, " + pools + "}]}\n",
		"ranges of an entry for all": "networks: {allowedModes: [flat], namespaces: [{namespaceSelector: {}, ranges: [10.0.0.0/16]}]}\n",
		"two entries, one selector": "networks: {namespaces: [{namespaceSelector: {matchLabels: {a: b}}, mode: namespace}, " +
			"{namespaceSelector: {matchLabels: {a: b}}, " + pools + "}]}\n",
	} {
		if _, err := config.Parse([]byte(minimal + text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// All faults of networks are reported at once, each with its line.
func TestAllFaultsOfNetworks(t *testing.T) {
	got := faults(t, minimal+`networks:
  mode: per-namespace
  subnetPoolIDs: [pool]
  ranges: [10.0.0.1/8, 10.1.0.0/20]
  prefixLength: 31
  prefixLengthIPv6: 32
  routerID: router
  dnsServers: [dns.example]
  routes: [{destination: 192.0.2.0/24, gateway: "fd00::1"}]
  allowedModes: [given]
  given: [{name: Storage}]
  namespaces: [{mode: flat}]
  minFree: 10001
projects: [{routerID: r}]
`)
	want := []string{
		`line 5: networks.mode: want shared, namespace or flat, got "per-namespace"`,
		`line 6: networks.subnetPoolIDs[0]: "pool" is no ID of a subnet pool: write the UUID that 'openstack subnet pool show -c id NAME' prints, not the name`,
		`line 7: networks.ranges[0]: "10.0.0.1/8" has bits behind the prefix, or is not its shortest form: write 10.0.0.0/8`,
		`line 8: networks.prefixLength: want 8 to 30, got 31`,
		`line 9: networks.prefixLengthIPv6: want 48 to 126, got 32`,
		`line 10: networks.routerID: "router" is no ID of a router: write the UUID that 'openstack router show -c id NAME' prints, not the name`,
		`line 11: networks.dnsServers[0]: "dns.example" is no IP address: write one as in 10.96.0.10 or fd00:96::a`,
		`line 12: networks.routes[0].gateway: fd00::1 is not of the IP family of destination 192.0.2.0/24: write an address of that family`,
		`line 13: networks.allowedModes[0]: given is no mode to write here: list the network under networks.given, and name it in the annotation openstack.org/kuryr-network of a namespace`,
		`line 14: networks.given[0].name: "Storage" is no name of a given network: write 1 to 63 small letters, digits or '-', as in storage`,
		`line 15: networks.namespaces[0]: missing: write namespaceSelector, or {} to select all`,
		`line 16: networks.minFree: want 0 to 10000, got 10001`,
		`line 17: projects[0].routerID: "r" is no ID of a router: write the UUID that 'openstack router show -c id NAME' prints, not the name`,
		`networks.given[0].subnetIDs: missing: write the ID of the network's subnet that pods get their address of, or of one IPv4 and one IPv6 subnet`,
		`projects[0].projectID: missing: write what 'openstack project show -c id NAME' prints`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestFaultsOfNetworks(t *testing.T) {
	entries := func(n int, entry string) string { return strings.Repeat(entry+", ", n) }
	var names, projects strings.Builder
	for i := range 101 {
		fmt.Fprintf(&names, "{name: n%d, subnetIDs: [%s]}, ", i, subnet)
		fmt.Fprintf(&projects, "{projectID: p%d}, ", i)
	}
	for _, c := range []struct{ name, text, want string }{
		{"no mode", "networks: {mode: \"\"}", `networks.mode: want shared, namespace or flat, got ""`},
		{"mode node", "networks: {mode: node}", "networks.mode: node is no mode to write here: write subnetIDs in an entry of nodes"},
		{"no pools", "networks: {mode: namespace}", "line 4: networks.mode: mode namespace needs subnet pools: write networks.subnetPoolIDs"},
		{"no pools for an allowed mode", "networks: {allowedModes: [shared, namespace]}", "networks.allowedModes[1]: mode namespace needs subnet pools"},
		{"no pools for an entry", "networks: {namespaces: [{namespaceSelector: {}, mode: namespace}]}", "networks.namespaces[0].mode: mode namespace needs subnet pools"},
		{"no ranges", "networks: {mode: flat}", "networks.mode: mode flat needs ranges: write networks.ranges, as in [10.0.0.0/8]"},
		{"no ranges for an entry", "networks: {namespaces: [{namespaceSelector: {}, mode: flat}]}", "networks.namespaces[0].mode: mode flat needs ranges"},
		{"mode of an entry", "networks: {namespaces: [{namespaceSelector: {}, mode: own}]}", `networks.namespaces[0].mode: want shared, namespace or flat, got "own"`},
		{"many pools", "networks: {subnetPoolIDs: [" + entries(3, subnet) + "]}", "networks.subnetPoolIDs: want at most 2, got 3"},
		{"no prefix", "networks: {ranges: [10.0.0.0]}", `networks.ranges[0]: "10.0.0.0" is no prefix: write it as in 10.0.0.0/8 or fd00:10::/48`},
		{"long form", `networks: {ranges: ["FD00:0::/48"]}`, `write fd00::/48`},
		{"IPv4 in IPv6", `networks: {ranges: ["::ffff:10.0.0.0/104"]}`, "is no prefix"},
		{"overlap", "networks: {ranges: [10.0.0.0/8, 11.0.0.0/8, 10.7.0.0/16]}", "networks.ranges[2]: 10.7.0.0/16 overlaps with 10.0.0.0/8, which is networks.ranges[0]: remove one"},
		{"many ranges", "networks: {ranges: [" + entries(17, "10.0.0.0/8") + "]}", "networks.ranges: want at most 16, got 17"},
		{"prefix length no number", `networks: {prefixLength: "16"}`, "networks.prefixLength: want a whole number, got string"},
		{"two routers", "networks: {routerID: " + subnet + ", router: {externalNetworkID: " + subnet6 + "}}",
			"networks.router: networks.routerID names a router that is there, and networks.router has Kuryr make another one for each namespace: remove one of the two"},
		{"two routers of a project", "projects: [{projectID: a, routerID: " + subnet + ", router: {externalNetworkID: " + subnet6 + "}}]", "projects[0].router: projects[0].routerID names a router"},
		{"a router without a way out", "networks: {namespaces: [{namespaceSelector: {}, router: {snat: true}}]}", "networks.namespaces[0].router.externalNetworkID: missing"},
		{"an external network by name", "networks: {router: {externalNetworkID: public}}", `networks.router.externalNetworkID: "public" is no ID of a network`},
		{"SNAT in words", "networks: {router: {externalNetworkID: " + subnet + ", snat: maybe}}", "networks.router.snat"},
		{"routes of a router", "networks: {router: {externalNetworkID: " + subnet + ", routes: [{destination: 10.96.0.0/16, gateway: nowhere}]}}", "networks.router.routes[0].gateway"},
		{"the example's router", "networks: {routerID: " + example + "}", "networks.routerID: replace the example's ID by that of your router"},
		{"DNS server twice", `networks: {dnsServers: ["fd00::53", 10.0.0.53, "fd00:0::53"]}`, "networks.dnsServers[2]: the same address as networks.dnsServers[0]: remove one"},
		{"DNS server of a link", `networks: {dnsServers: ["fe80::1%eth0"]}`, "is no IP address"},
		{"many DNS servers", "networks: {dnsServers: [" + entries(17, "10.0.0.53") + "]}", "networks.dnsServers: want at most 16, got 17"},
		{"destination", "networks: {routes: [{destination: 192.0.2.1/24, gateway: 10.0.0.1}]}", `networks.routes[0].destination: "192.0.2.1/24" has bits behind the prefix, or is not its shortest form: write 192.0.2.0/24`},
		{"no gateway", "networks: {routes: [{destination: 192.0.2.0/24}]}", `networks.routes[0].gateway: "" is no IP address`},
		{"many routes", "networks: {routes: [" + entries(65, "{destination: 192.0.2.0/24, gateway: 10.0.0.1}") + "]}", "networks.routes: want at most 64, got 65"},
		{"minFree above max", "networks: {minFree: 9}\npools: {max: 8}", "networks.minFree: minFree 9 is above pools.max 8: lower minFree, or raise pools.max"},
		{"name twice", "networks: {given: [{name: a, subnetIDs: [" + subnet + "]}, {name: a, subnetIDs: [" + subnet6 + "]}]}", "networks.given[1].name: the same name as networks.given[0]: write another one"},
		{"given network", "networks: {given: [{name: a, networkID: b, subnetIDs: [" + subnet + "]}]}", `networks.given[0].networkID: "b" is no ID of a network`},
		{"given network's selector", "networks: {given: [{name: a, subnetIDs: [" + subnet + "], namespaceSelector: {matchLabels: {a b: c}}}]}", "networks.given[0].namespaceSelector: it selects nothing"},
		{"many given networks", "networks: {given: [" + names.String() + "]}", "networks.given: want at most 100 entries, got 101"},
		{"entry of nothing", "networks: {namespaces: [{namespaceSelector: {}}]}", "networks.namespaces[0]: it sets nothing: write mode"},
		{"entry's selector", "networks: {namespaces: [{namespaceSelector: {matchLabels: {a b: c}}, mode: shared}]}", "networks.namespaces[0].namespaceSelector: it selects nothing"},
		{"entry without a selector", "networks: {namespaces: [{mode: shared}]}", "networks.namespaces[0]: missing: write namespaceSelector, or {} to select all"},
		{"many entries", "networks: {namespaces: [" + entries(101, "{namespaceSelector: {}, mode: shared}") + "]}", "networks.namespaces: want at most 100 entries, got 101"},
		{"misspelled", "networks: {subnetPoolIds: []}", "networks.subnetPoolIds: unknown field"},
		{"misspelled in an entry", "networks: {namespaces: [{namespaceSelector: {}, prefixlength: 16}]}", "networks.namespaces[0].prefixlength: unknown field"},
		{"the name that the embedded struct has inside", "networks: {NetworkChoice: {}}", "networks.NetworkChoice: unknown field"},
		{"project twice", "projects: [{projectID: a}, {projectID: b}, {projectID: a}]", "projects[2].projectID: the same project as projects[0]: a project has one entry"},
		{"project's credential twice", "projects: [{projectID: a, cloud: x}, {projectID: b}, {projectID: c, cloud: x}]", "projects[2].cloud: the same entry of clouds.yaml as projects[0].cloud: a credential is of one project"},
		{"project's name", "projects: [{projectID: the one}]", `projects[0].projectID: "the one" is no ID of a project`},
		{"project's groups", "projects: [{projectID: a, securityGroupIDs: [default]}]", `projects[0].securityGroupIDs[0]: "default" is no ID of a security group`},
		{"project's pools", "projects: [{projectID: a, subnetPoolIDs: [" + subnet + ", " + subnet + "]}]", "projects[0].subnetPoolIDs[1]: the same subnet pool as projects[0].subnetPoolIDs[0]"},
		{"project's external network", "projects: [{projectID: a, externalNetworkID: public}]", `projects[0].externalNetworkID: "public" is no ID of a network`},
		{"project's selector", "projects: [{projectID: a, namespaceSelector: {matchLabels: {a b: c}}}]", "projects[0].namespaceSelector: it selects nothing"},
		{"selector of those who may name a project", "projects: [{projectID: a, allowedNamespaces: {matchLabels: {a b: c}}}]", "projects[0].allowedNamespaces: it selects nothing"},
		{"many projects", "projects: [" + projects.String() + "]", "projects: want at most 100 entries, got 101"},
		{"nodes' subnet", "nodes: [{nodeSelector: {}, subnetIDs: [a]}]", `nodes[0].subnetIDs[0]: "a" is no ID of a subnet`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(faults(t, minimal+c.text+"\n"), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("Parse of\n%s\ngot\n%s\nwant a fault with\n%s", c.text, got, c.want)
			}
		})
	}
}

// A router to make is read where a router that is there may be, and SNAT that is left out is neither
// true nor false.
func TestRoutersToMake(t *testing.T) {
	capitals := strings.ToUpper(subnet6)
	got := parse(t, minimal+"networks: {router: {externalNetworkID: "+capitals+", snat: false, routes: [{destination: 10.96.0.0/16, gateway: 192.0.2.3}]}, "+
		"namespaces: [{namespaceSelector: {}, router: {externalNetworkID: "+subnet+"}}]}\nprojects: [{projectID: a, router: {externalNetworkID: "+capitals+", snat: true}}]\n")
	want := []*config.Router{
		{ExternalNetworkID: subnet6, SNAT: new(false), Routes: []config.Route{{Destination: "10.96.0.0/16", Gateway: "192.0.2.3"}}},
		{ExternalNetworkID: subnet}, {ExternalNetworkID: subnet6, SNAT: new(true)},
	}
	if diff := cmp.Diff(want, []*config.Router{got.Networks.Router, got.Networks.Namespaces[0].Router, got.Projects[0].Router}); diff != "" {
		t.Errorf("routers (-want +got):\n%s", diff)
	}
}

// IDs of networks and projects are as the cloud writes them, however they are written.
func TestIDsOfNetworksInCapitals(t *testing.T) {
	text := minimal + `nodes: [{nodeSelector: {}, subnetIDs: [` + subnet6 + `]}]
networks:
  subnetPoolIDs: [` + subnet6 + `]
  routerID: ` + subnet6 + `
  given: [{name: a, networkID: ` + subnet6 + `, subnetIDs: [` + subnet6 + `]}]
  namespaces: [{namespaceSelector: {}, routerID: ` + subnet6 + `, subnetPoolIDs: [` + subnet6 + `]}]
projects: [{projectID: a, securityGroupIDs: [` + subnet6 + `], routerID: ` + subnet6 + `, subnetPoolIDs: [` + subnet6 + `], externalNetworkID: ` + subnet6 + `}]
`
	if diff := cmp.Diff(parse(t, text), parse(t, strings.ReplaceAll(text, subnet6, strings.ToUpper(subnet6)))); diff != "" {
		t.Errorf("with IDs in capitals (-small +capitals):\n%s", diff)
	}
}
