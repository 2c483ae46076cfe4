// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr-go/kuryr/internal/config"
)

const sample = "../../config/base/kuryr.yaml"

const head = "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\n"

const (
	subnet  = "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11"
	subnet6 = "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e12"
	example = "00000000-0000-0000-0000-000000000000"
)

// minimal is the least that passes, in three lines.
const minimal = head + "pods: {subnetIDs: [" + subnet + "]}\n"

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse:\n%s\n%v", text, err)
	}
	return c
}

func faults(t *testing.T, text string) []string {
	t.Helper()
	_, err := config.Parse([]byte(text))
	var fe *config.FaultsError
	if !errors.As(err, &fe) {
		t.Fatalf("Parse: got %v, want a FaultsError\n%s", err, text)
	}
	var got []string
	for _, f := range fe.Faults {
		got = append(got, f.String())
	}
	return got
}

// The sample's promise: what is left out has the value shown there.
func TestSampleShowsTheDefaults(t *testing.T) {
	data, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	got := parse(t, strings.ReplaceAll(string(data), example, subnet))
	want := config.New()
	want.Pods.SubnetIDs = []string{subnet}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s differs from the defaults (-want +got):\n%s", sample, diff)
	}
}

// Every field is in the sample, with a comment that explains it.
func TestSampleExplainsEveryField(t *testing.T) {
	data, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range config.Paths() {
		name := f[strings.LastIndex(f, ".")+1:]
		if !strings.Contains(string(data), "\n"+strings.Repeat("  ", strings.Count(f, "."))+name+":") {
			t.Errorf("%s does not show %s", sample, f)
		}
	}
}

var (
	commented = regexp.MustCompile(`(?m)^( *)#([- ] )`)
	emptyList = regexp.MustCompile(`(?m)^( *(?:nodes|overrides|securityGroups|routes|given|namespaces|projects): )\[\]$`)
)

// What the sample has in comments for its lists is right, and complete.
func TestSampleOfLists(t *testing.T) {
	data, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	text := emptyList.ReplaceAllString(strings.ReplaceAll(string(data), example, subnet), "$1")
	text = commented.ReplaceAllString(text, "$1$2")
	got := parse(t, text)
	if len(got.Nodes) != 1 || len(got.Pools.Overrides) != 2 || len(got.Pods.SecurityGroups) != 1 {
		t.Errorf("%s with its examples: got %+v, %+v, %+v", sample, got.Nodes, got.Pools.Overrides, got.Pods.SecurityGroups)
	}
	if n := got.Networks; len(n.Routes) != 1 || len(n.Given) != 1 || len(n.Namespaces) != 3 || len(got.Projects) != 1 {
		t.Errorf("%s with its examples: got %+v, %+v", sample, n, got.Projects)
	}
	for _, f := range config.Entries() {
		name := f[strings.LastIndex(f, ".")+1:]
		if !strings.Contains(string(data), "#  "+name+":") && !strings.Contains(string(data), "#- "+name+":") {
			t.Errorf("%s has no example of %s", sample, f)
		}
	}
}

func TestDefaults(t *testing.T) {
	want := config.New()
	want.Pods.SubnetIDs = []string{subnet}
	for name, text := range map[string]string{
		"left out": minimal,
		"null":     minimal + "node:\npools: {min: , ttl: null}\nneutron: {requestTimeout: ~}\n",
	} {
		if diff := cmp.Diff(want, parse(t, text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What Neutron's backend takes as a cluster's ID passes here.
func TestClusterIDs(t *testing.T) {
	for _, id := range []string{"a", "_x-", ".eu.1_", strings.Repeat("a", 64)} {
		if got := parse(t, minimal+"clusterID: "+id+"\n").ClusterID; got != id {
			t.Errorf("clusterID %q was read as %q", id, got)
		}
	}
}

func TestEveryFieldIsRead(t *testing.T) {
	got := parse(t, head+`
clusterID: blue-1
neutron: {cloud: c, requestTimeout: 90s, requestsPerSecond: 2.5, maxConcurrentRequests: 3, loadBalancerAPI: lbaasv2}
pods:
  projectID: "0123456789abcdef0123456789abcdef"
  subnetIDs: [`+subnet+`, `+subnet6+`]
  securityGroupIDs: [`+subnet+`]
  vifType: bridge
  portDebug: true
  securityGroups:
    - namespaceSelector: {}
      podSelector: {matchLabels: {app: web}, matchExpressions: [{key: role, operator: NotIn, values: [a, b]}]}
      securityGroupIDs: []
nodes:
  - {nodeSelector: {matchLabels: {vm: "yes"}}, vifType: vlan, parentSubnetIDs: [`+subnet6+`]}
pools:
  min: 1
  max: 5
  batch: 2
  ttl: 1h30m
  cooldown: 30s
  warmUp: true
  maxCreates: 3
  maxCreatesPerSubnet: 2
  overrides:
    - {nodeSelector: {matchLabels: {size: l}}, min: 0, max: 7, batch: 3, ttl: 0s, cooldown: 1s}
    - {namespaceSelector: {matchLabels: {team: a}}}
networks:
  mode: flat
  subnetPoolIDs: [`+subnet+`]
  ranges: [10.0.0.0/8]
  prefixLength: 20
  prefixLengthIPv6: 72
  routerID: `+subnet+`
  dnsServers: ["fd00::53"]
  routes: [{destination: 192.0.2.0/24, gateway: 10.0.0.254}]
  allowedModes: [namespace]
  given: [{name: storage, networkID: `+subnet+`, subnetIDs: [`+subnet+`], namespaceSelector: {}}]
  namespaces: [{namespaceSelector: {}, mode: shared, prefixLength: 24}]
  minFree: 0
projects: [{projectID: p, namespaceSelector: {}, securityGroupIDs: [], routerID: `+subnet+`, subnetPoolIDs: [`+subnet+`], externalNetworkID: `+subnet+`}]
services:
  projectID: p
  subnetIDs: [`+subnet+`]
  nodeSubnetIDs: [`+subnet6+`]
  provider: ovn
  flavorID: `+subnet+`
  externalNetworkID: `+subnet+`
  externalSubnetID: `+subnet6+`
  allowed:
    memberSubnetIDs: [`+subnet+`]
    externalNetworkIDs: [`+subnet+`]
    externalSubnetIDs: [`+subnet+`]
    providers: [amphora]
    flavorIDs: [`+subnet+`]
  sourceRangesBySecurityGroups: true
  checkInterval: 1m
  releaseAfter: 2m
orphans: {interval: 5m, grace: 2m}
controllers: {active: 3}
preflight: {firstStartWaits: false}
node: {ovsdb: "tcp:[::1]:6640", bridge: br0, parentInterface: ens3, driverDir: /d, stateDir: /s, mtu: 1400, addTimeout: 30s, park: false}
`)
	defaults := config.New()
	defaults.Pods.SubnetIDs = []string{subnet}
	for _, f := range config.Unchanged(defaults, got) {
		if f != "apiVersion" && f != "kind" && f != "networks.router" && f != "pods.subnetIDs" { // routerID stands beside router; SubnetIDs is below
			t.Errorf("%s was not read", f)
		}
	}
	if got.Pools.TTL.Duration != 90*time.Minute || got.Neutron.RequestsPerSec != 2.5 || got.Pods.SubnetIDs[1] != subnet6 {
		t.Errorf("got %+v", got)
	}
}

// What lists of entries hold is read as it was written: what is said and what
// is not is told apart.
// TestLabelsOfAnyForm: a selector keeps all its labels, and so selects no more than its author wrote.
func TestLabelsOfAnyForm(t *testing.T) {
	c, err := config.Parse([]byte(minimal + "nodes: [{nodeSelector: {matchLabels: {a: , 8080: x, true: y}}, vifType: vlan, parentSubnetIDs: [" + subnet + "]}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "", "8080": "x", "true": "y"}
	if got := c.Nodes[0].NodeSelector.MatchLabels; !maps.Equal(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}

func TestEntries(t *testing.T) {
	got := parse(t, minimal+`
nodes:
  - {nodeSelector: {matchLabels: {vm: "yes"}}, vifType: vlan, parentSubnetIDs: [`+subnet6+`]}
pools:
  max: 9
  overrides:
    - {nodeSelector: {}, min: 0, ttl: 0s}
    - {namespaceSelector: {matchExpressions: [{key: team, operator: In, values: [a, b]}]}, nodeSelector: }
`)
	wantNodes := []config.NodePorts{{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"vm": "yes"}}, VIFType: "vlan", ParentSubnetIDs: []string{subnet6},
	}}
	wantOverrides := []config.PoolOverride{
		{NodeSelector: &metav1.LabelSelector{}, Min: new(int32(0)), TTL: &metav1.Duration{}},
		{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
		}}},
	}
	if diff := cmp.Diff(wantNodes, got.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantOverrides, got.Pools.Overrides); diff != "" {
		t.Errorf("pools.overrides (-want +got):\n%s", diff)
	}
}

func TestTenFaultsTenMessages(t *testing.T) {
	got := faults(t, `apiVersion: kuryr.openstack.org/v1
kind: KuryrConfiguration
neutron:
  requestTimeout: 60
pods:
  subnetIDs:
    - `+subnet+`
    - pods-subnet
  projectId: `+subnet+`
  portDebug: "yes"
pools:
  min: 5
  max: 3
  batch: many
  ttl: -1s
  ttl: 10m
subnetIDs: []
node:
  stateDir: var/lib/kuryr
`)
	want := []string{
		`line 1: apiVersion: want kuryr.openstack.org/v1alpha1, got "kuryr.openstack.org/v1"`,
		`line 4: neutron.requestTimeout: want a string (a time has a unit, as in 90s), got number`,
		`line 8: pods.subnetIDs[1]: "pods-subnet" is no ID of a subnet: write the UUID that 'openstack subnet show -c id NAME' prints, not the name`,
		`line 9: pods.projectId: unknown field`,
		`line 10: pods.portDebug: want true or false, got string`,
		`line 12: pools.min: min 5 is above max 3: lower min, raise max, or write max: 0 for no limit`,
		`line 14: pools.batch: want a whole number, got string`,
		`line 16: pools.ttl: said twice, first in line 15: remove one`,
		`line 17: subnetIDs: unknown field`,
		`line 19: node.stateDir: "var/lib/kuryr" is no absolute path: begin it with /`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestFaults(t *testing.T) {
	many := strings.Repeat(subnet+", ", 17)
	for _, c := range []struct{ name, text, want string }{
		{"empty file", "", "apiVersion: want kuryr.openstack.org/v1alpha1"},
		{"comments only", "# later\n", `pods.subnetIDs: missing: write the ID`},
		{"no subnet", head, "pods.subnetIDs: missing: write the ID"},
		{"subnets null", head + "pods: {subnetIDs: }", "pods.subnetIDs: missing"},
		{"no YAML", "a: b: c", "not YAML: mapping values are not allowed"},
		{"bad UTF-8", "a: \xff", "not YAML: "},
		{"two documents", minimal + "---\n" + minimal, "line 4: a second YAML document"},
		{"garbage after", minimal + "---\na: b: c\n", "not YAML"},
		{"a list", "- a", "line 1: want fields, got array"},
		{"a string", "hello", "want fields, got string"},
		{"wrong kind", "kind: ConfigMap\n", `line 1: kind: want KuryrConfiguration, got "ConfigMap"`},
		{"scalar for fields", head + "pods: 5", "line 3: pods: want fields, got number"},
		{"scalar for list", head + "pods: {subnetIDs: abc}", "pods.subnetIDs: want a list, got string"},
		{"ID for list", head + "pods: {securityGroupIDs: " + subnet + "}", "pods.securityGroupIDs: want a list, got string"},
		{"the example's subnet", head + "pods: {subnetIDs: [" + example + "]}", "pods.subnetIDs[0]: replace the example's ID by that of your subnet: the UUID that 'openstack subnet show"},
		{"the example's group", head + "pods: {securityGroupIDs: [" + example + "]}", "replace the example's ID by that of your security group"},
		{"tab", head + "pods:\n\tsubnetIDs: [" + subnet + "]\n", "line 4: not YAML: a tab: indent with spaces"},
		{"tab further in", head + "pods:\n  vifType: ovs\n\tsubnetIDs: [" + subnet + "]\n", "line 5: not YAML: a tab: indent with spaces"},
		{"tab in a list", head + "pods:\n  subnetIDs:\n  -\tx: y\n", "line 5: not YAML: a tab: indent with spaces"},
		{"stray character", "a: @b", "not YAML: found character that cannot start any token"},
		{"fields for string", head + "clusterID: {}", "clusterID: want a string (a time has a unit, as in 90s), got object"},
		{"number for string", head + "clusterID: 17", "got number"},
		{"list for time", head + "pools: {ttl: [1s]}", "pools.ttl: want a string (a time has a unit, as in 90s), got array"},
		{"time without a unit", head + `pools: {ttl: "10"}`, "time: missing unit in duration"},
		{"string for number", head + `node: {mtu: "1400"}`, "node.mtu: want a whole number, got string"},
		{"too large a number", head + "pools: {min: 99999999999}", "pools.min: want a whole number, got number 99999999999"},
		{"string for float", head + "neutron: {requestsPerSecond: fast}", "want a number, got string"},
		{"infinite", head + "neutron: {requestsPerSecond: .inf}", "unsupported value: +Inf"},
		{"not a number", head + "neutron: {requestsPerSecond: .nan}", "unsupported value: NaN"},
		{"no requests", head + "neutron: {requestsPerSecond: 0}", "neutron.requestsPerSecond: want more than 0 and at most 10000, got 0"},
		{"no concurrency", head + "neutron: {maxConcurrentRequests: 0}", "want 1 to 1000, got 0"},
		{"load-balancing API", head + "neutron: {loadBalancerAPI: haproxy}", `want octavia, or lbaasv2 for a Neutron that serves load balancers itself, got "haproxy"`},
		{"request timeout", head + "neutron: {requestTimeout: 1ms}", "neutron.requestTimeout: want at least 1s, got 1ms"},
		{"misspelled", head + "pool: {min: 1}", "line 3: pool: unknown field"},
		{"unknown", head + "networkPolicy: {}", "line 3: networkPolicy: unknown field"},
		{"field as list", head + "[a, b]: c", "map key"},
		{"cluster ID", head + "clusterID: a/b", `clusterID: "a/b" is no mark for the cloud: write 1 to 64 letters, digits, '.', '_' or '-'`},
		{"long cluster ID", head + "clusterID: " + strings.Repeat("a", 65), "is no mark for the cloud: write 1 to 64"},
		{"project", head + "pods: {projectID: a b}", `pods.projectID: "a b" is no ID of a project`},
		{"subnet twice", head + "pods: {subnetIDs: [" + subnet + ", " + subnet + "]}", "pods.subnetIDs[1]: the same subnet as pods.subnetIDs[0]"},
		{"subnet twice, in a list", head + "pods: {subnetIDs: [" + subnet + ", [" + subnet6 + ", " + subnet + "]]}", "pods.subnetIDs[1][1]: the same subnet as in pods.subnetIDs[0]"},
		{"no subnet in a list", head + "pods: {subnetIDs: [[]]}", "pods.subnetIDs[0]: an empty list"},
		{"no ID in a list", head + "pods: {subnetIDs: [[" + subnet + ", a]]}", `pods.subnetIDs[0][1]: "a" is no ID of a subnet`},
		{"list in a list in a list", head + "pods: {subnetIDs: [[[" + subnet + "]]]}", "pods.subnetIDs[0]: want the ID of a subnet, or a list of IDs"},
		{"many subnets in a list", head + "pods: {subnetIDs: [[" + many + "]]}", "pods.subnetIDs[0]: want at most 16 subnets for one address, got 17"},
		{"the name that the others have inside", head + "pods: {MoreSubnetIDs: {}, subnetIDs: [" + subnet + "]}", "unknown field"},
		{"many subnets", head + "pods: {subnetIDs: [" + many + "]}", "pods.subnetIDs: want at most 16, got 17"},
		{"security group", head + "pods: {securityGroupIDs: [default]}", `'openstack security group show -c id NAME'`},
		{"vif type", head + "pods: {vifType: OVS}", `pods.vifType: "OVS" is no type of port`},
		{"batch", head + "pools: {batch: 0}", "pools.batch: want 1 to 500, got 0"},
		{"min", head + "pools: {min: -1}", "pools.min: want 0 to 10000, got -1"},
		{"cooldown", head + "pools: {cooldown: -1s}", "pools.cooldown: want at least 0s, got -1s"},
		{"ttl", head + "pools: {ttl: 90000h}", "pools.ttl: want at most 87600h0m0s"},
		{"max below the default min", head + "pools: {max: 3}", "line 3: pools.max: max 3 is below min, which is 5 where it is not said: say min here, too"},
		{"creates", head + "pools: {maxCreates: 0}", "pools.maxCreates: want 1 to 100, got 0"},
		{"creates per subnet", head + "pools: {maxCreatesPerSubnet: 101}", "pools.maxCreatesPerSubnet: want 1 to 100, got 101"},
		{"warm-up", head + "pools: {warmUp: {nodes: true}}", "pools.warmUp: want true or false, got object"},
		{"timeouts of all Services, which are gone", head + "services: {timeoutClientData: 1}", "services.timeoutClientData: unknown field"},
		{"network of pods, which is gone", head + "pods: {networkID: " + subnet + "}", "pods.networkID: unknown field"},
		{"network of nodes, which is gone", head + "nodes: [{networkID: " + subnet + "}]", "nodes[0].networkID: unknown field"},
		{"MTU of networks, which is gone", head + "networks: {mtu: 1400}", "networks.mtu: unknown field"},
		{"override of nothing", head + "pools: {overrides: [{min: 1}]}", "line 3: pools.overrides[0]: missing: write namespaceSelector or nodeSelector, or {} to select all"},
		{"null override", head + "pools: {overrides: [~]}", "pools.overrides[0]: missing"},
		{"override that says nothing", head + "pools: {overrides: [{nodeSelector: {}}]}", "pools.overrides[0]: it sets no level: write min, max"},
		{"override's batch", head + "pools: {overrides: [{nodeSelector: {}, batch: 0}]}", "pools.overrides[0].batch: want 1 to 500, got 0"},
		{"override's ttl", head + "pools: {overrides: [{nodeSelector: {}, ttl: 5}]}", "pools.overrides.ttl: want a string (a time has a unit, as in 90s), got number"},
		{"override's min", head + "pools: {max: 9, overrides: [{nodeSelector: {}, min: 10}]}", "pools.overrides[0].min: min 10 is above max 9"},
		{"override's max", head + "pools: {overrides: [{nodeSelector: {}, max: 4}]}", "pools.overrides[0].max: max 4 is below min, which is 5 where it is not said"},
		{"overrides no list", head + "pools: {overrides: {min: 1}}", "pools.overrides: want a list, got object"},
		{"misspelled in an entry", head + "pools: {overrides: [{nodeselector: {}}]}", "pools.overrides[0].nodeselector: unknown field"},
		{"no such operator", head + "nodes: [{nodeSelector: {matchExpressions: [{key: a, operator: Is, values: [b]}]}}]", `nodes[0].nodeSelector: it selects nothing: "Is" is not a valid label selector operator`},
		{"no label", head + "nodes: [{nodeSelector: {matchLabels: {a b: c}}}]", "nodes[0].nodeSelector: it selects nothing"},
		{"label no string", head + "nodes: [{nodeSelector: {matchLabels: {vm: true}}}]", "nodes.nodeSelector.matchLabels: want a string (a time has a unit, as in 90s), got bool"},
		{"label twice", head + "nodes: [{nodeSelector: {matchLabels: {a: b, a: b}}}]", "nodes[0].nodeSelector.matchLabels.a: said twice"},
		{"labels no map", head + "nodes: [{nodeSelector: {matchLabels: [a]}}]", "nodes.nodeSelector.matchLabels: want fields, got array"},
		{"values no list", head + "nodes: [{nodeSelector: {matchExpressions: [{key: a, operator: In, values: b}]}}]", "values: want a list, got string"},
		{"a selector of another kind", head + "nodes: [{nodeSelector: {vm: yes}}]", "nodes[0].nodeSelector.vm: unknown field"},
		{"node without a selector", head + "nodes: [{vifType: VLAN}]", "nodes[0]: missing: write nodeSelector"},
		{"all faults of an entry", head + "nodes: [{vifType: VLAN}]", `nodes[0].vifType: "VLAN" is no type of port`},
		{"parent's subnet", head + "nodes: [{nodeSelector: {}, vifType: vlan, parentSubnetIDs: [" + example + "]}]", "nodes[0].parentSubnetIDs[0]: replace the example's ID"},
		{"parents' project", head + "nodes: [{nodeSelector: {}, vifType: vlan, parentProjectID: the one}]", `nodes[0].parentProjectID: "the one" is no ID of a project`},
		{"project of no machine", head + "nodes: [{nodeSelector: {}, parentProjectID: abc}]", "nodes[0].parentProjectID: it has an effect only with vifType vlan or macvlan"},
		{"parent of no machine", head + "nodes: [{nodeSelector: {}, parentSubnetIDs: [" + subnet + "]}]", "nodes[0].parentSubnetIDs: it has an effect only with vifType vlan or macvlan"},
		{"many nodes", head + "nodes: [" + strings.Repeat("{nodeSelector: {}}, ", 101) + "]", "nodes: want at most 100 entries, got 101"},
		{"rule without groups", head + "pods: {securityGroups: [{podSelector: {}}]}", "pods.securityGroups[0].securityGroupIDs: missing: write the IDs"},
		{"rule of nothing", head + "pods: {securityGroups: [{securityGroupIDs: []}]}", "pods.securityGroups[0]: missing: write namespaceSelector or podSelector"},
		{"rule's group", head + "pods: {securityGroups: [{podSelector: {}, securityGroupIDs: [web]}]}", "pods.securityGroups[0].securityGroupIDs[0]: \"web\" is no ID of a security group"},
		{"park", head + "node: {park: 1}", "node.park: want true or false, got number"},
		{"services' subnet", head + "services: {subnetIDs: [services]}", `services.subnetIDs[0]: "services" is no ID of a subnet`},
		{"services' example", head + "services: {nodeSubnetIDs: [" + example + "]}", "services.nodeSubnetIDs[0]: replace the example's ID"},
		{"services' project", head + "services: {projectID: a/b}", `services.projectID: "a/b" is no ID of a project`},
		{"provider", head + "services: {provider: o v n}", `services.provider: "o v n" is no name of a provider: write one that 'openstack loadbalancer provider list' prints`},
		{"flavor", head + "services: {flavorID: large}", "'openstack loadbalancer flavor show -c id NAME'"},
		{"external network", head + "services: {externalNetworkID: public}", `services.externalNetworkID: "public" is no ID of a network`},
		{"external subnet alone", head + "services: {externalSubnetID: " + subnet + "}", "services.externalNetworkID: missing: write the ID of the network that externalSubnetID is of"},
		{"release after", head + "services: {releaseAfter: 1s}", "services.releaseAfter: want at least 1m0s, got 1s"},
		{"check interval", head + "services: {checkInterval: 1s}", "services.checkInterval: want at least 10s, got 1s"},
		{"interval", head + "orphans: {interval: 10ms}", "orphans.interval: want at least 1s, got 10ms"},
		{"short grace", head + "orphans: {grace: 14s}", "orphans.grace: want at least 15s, got 14s"},
		{"grace", head + "orphans: {grace: 48h}", "orphans.grace: want at most 24h0m0s, got 48h0m0s"},
		{"ovsdb path", head + "node: {ovsdb: /run/openvswitch/db.sock}", `is no place of an OVSDB server: write unix:/run`},
		{"ovsdb port", head + "node: {ovsdb: 'tcp:localhost'}", `is no place of an OVSDB server`},
		{"bridge", head + "node: {bridge: a-very-long-bridge-name}", "is no name of a bridge: write 1 to 15 characters"},
		{"mtu", head + "node: {mtu: 9}", "node.mtu: want 68 to 65535, got 9"},
		{"add timeout", head + "node: {addTimeout: 4m}", "node.addTimeout: want at most 3m30s, got 4m0s"},
		{"alias to itself", head + "pods: &p {subnetIDs: [*p]}", "anchor 'p' value contains itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(faults(t, c.text), "\n")
			if !strings.Contains(got, c.want) {
				t.Errorf("Parse(%q): got\n%s\nwant a fault with\n%s", c.text, got, c.want)
			}
		})
	}
}

// A wrong part is one fault, not one for each field that it lacks.
func TestOneMistakeOneMessage(t *testing.T) {
	for text, want := range map[string]int{
		"[]":                                1,
		head + "pods: nothing":              1,
		head + "pods: {subnetIDs: none}":    1,
		minimal + "pools: {min: a, max: 3}": 1,
	} {
		if got := faults(t, text); len(got) != want {
			t.Errorf("Parse(%q): got %d faults, want %d: %q", text, len(got), want, got)
		}
	}
}

func TestLoadSaysWhichFile(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.yaml")
	if _, err := config.Load(missing); err == nil || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("Load of a missing file: got %v, want its path and ErrNotExist", err)
	}
	large := filepath.Join(dir, "large.yaml")
	write(t, large, minimal+strings.Repeat("# padding\n", 200000))
	if _, err := config.Load(large); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("Load of 2 MB: got %v, want it refused", err)
	}
	bad := filepath.Join(dir, "bad.yaml")
	write(t, bad, "kind: x")
	if _, err := config.Load(bad); err == nil || !strings.Contains(err.Error(), bad+": 3 faults\n  line 1: kind") {
		t.Errorf("Load of a bad file: got %v, want its path and the faults", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whatever the input: no panic, and either a configuration that is the same
// when checked again, or faults that say something.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(sample)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(data), minimal, head + "pods: &p {subnetIDs: [*p]}", minimal + "networks: &n {mode: flat, ranges: [10.0.0.0/8], namespaces: [*n]}", "a: b: c", "<<: *x", "? [a]\n: b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data)
		var fe *config.FaultsError
		switch {
		case err == nil && (len(c.Pods.SubnetIDs) == 0 || c.Pools.Batch < 1 || c.Kind != config.Kind):
			t.Errorf("Parse let pass %+v", c)
		case err != nil && !errors.As(err, &fe):
			t.Errorf("Parse: got %T %v, want a FaultsError", err, err)
		case err != nil && (len(fe.Faults) == 0 || fe.Faults[0].Message == ""):
			t.Errorf("Parse: an error that says nothing: %#v", fe)
		}
	})
}

// IDs are as the cloud writes them, however they are written.
func TestIDsInCapitals(t *testing.T) {
	text := minimal + "nodes: [{nodeSelector: {}, vifType: vlan, parentSubnetIDs: [" + subnet6 + "]}]\n" +
		"services: {subnetIDs: [" + subnet + "], nodeSubnetIDs: [" + subnet6 + "], flavorID: " + subnet + ", externalNetworkID: " + subnet6 + ", externalSubnetID: " + subnet + "}\n"
	text = strings.Replace(text, "pods: {", "pods: {securityGroupIDs: ["+subnet+"], securityGroups: [{podSelector: {}, securityGroupIDs: ["+subnet6+"]}], ", 1)
	capitals := strings.NewReplacer(subnet, strings.ToUpper(subnet), subnet6, strings.ToUpper(subnet6)).Replace(text)
	if diff := cmp.Diff(parse(t, text), parse(t, capitals)); diff != "" {
		t.Errorf("with IDs in capitals (-small +capitals):\n%s", diff)
	}
	got := faults(t, head+"pods: {subnetIDs: ["+subnet+", "+strings.ToUpper(subnet)+"]}\n")
	if len(got) != 1 || !strings.Contains(got[0], "the same subnet as pods.subnetIDs[0]") {
		t.Errorf("one subnet twice, once in capitals: %q", got)
	}
}

// A draft may lack the IDs of a first start, or have the example's. Other faults stay.
func TestDraft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kuryr.yaml")
	for text, want := range map[string]string{
		head: "",
		head + "pods: {subnetIDs: [" + example + "], securityGroupIDs: [" + example + "]}\nservices: {subnetIDs: [" + example + "]}\n": "",
		head + "pods: {subnetIDs: [pods]}\n":             "is no ID of a subnet",
		head + "pods: {subnetIDs: pods}\n":               "want a list",
		head + "services: {flavorID: " + example + "}\n": "replace the example's ID",
	} {
		write(t, path, text)
		c, err := config.LoadDraft(path)
		if want == "" && (err != nil || len(c.Pods.SubnetIDs)+len(c.Pods.SecurityGroupIDs)+len(c.Services.SubnetIDs) > 0) {
			t.Errorf("LoadDraft(%q) = %+v, %v; want a configuration without IDs", text, c, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("LoadDraft(%q): %v, want %q", text, err, want)
		}
	}
}

// An entry of pods.subnetIDs may be a list: its first is what it was as a plain entry.
func TestSubnetsInLists(t *testing.T) {
	const third = "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e99"
	got := parse(t, head+"pods: {subnetIDs: [["+strings.ToUpper(subnet)+", "+strings.ToUpper(third)+"], "+subnet6+"]}\n").Pods
	want := config.New().Pods
	want.SubnetIDs, want.MoreSubnetIDs = []string{subnet, subnet6}, map[string][]string{subnet: {third}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{subnet, third, subnet6}, got.AllSubnetIDs()); diff != "" {
		t.Errorf("all subnets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(parse(t, minimal), parse(t, head+"pods: {subnetIDs: [["+subnet+"]]}\n")); diff != "" {
		t.Errorf("a list of one (-plain +list):\n%s", diff)
	}
}
