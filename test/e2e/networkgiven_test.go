// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"k8s.io/apimachinery/pkg/util/rand"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// The pods of a namespace that chooses a given network are in it, beside a virtual
// machine, and their security groups name each other's: the machine reaches them and
// their Service, and they reach it. Its floating IP is reached from behind another
// router: behind its own one, which does not translate addresses, the answer would come
// from its own address. Kuryr leaves the network as it is when the namespace goes.
func TestGivenNetworkWithMachine(t *testing.T) {
	long(t)
	f := withNetworks(t, chooses(v1.NetworkAnnotation, "given"))
	podGroup, machineGroup := f.closedGroup(t), f.namedGroup(t, "machine")
	f.letsGroup(t, podGroup, machineGroup)
	f.letsGroup(t, podGroup, podGroup)
	f.letsGroup(t, machineGroup, podGroup)
	for _, prefix := range strings.Fields(families("NODE_CIDR")) {
		f.letsPrefix(t, podGroup, prefix)
	}
	a := tenantOf("A")
	f.letsPrefix(t, machineGroup, a.cidr)
	elsewhere := f.beside(t, "elsewhere", project(a.project), mode(v1.NetworkNamespace))
	f.configure(t, func(pods map[string]any) {
		pods["securityGroups"] = []any{map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]string{"kubernetes.io/metadata.name": f.namespace}},
			"securityGroupIDs":  []string{podGroup},
		}}
	})
	t.Cleanup(func() { f.removePods(t) })

	pods := f.pods(t, "a", "b", "c")
	kns := f.network(t)
	if kns.Spec.Mode != v1.NetworkGiven || kns.Status.NetworkID != os.Getenv("GIVEN_NET") {
		t.Errorf("KuryrNetwork is %+v, %+v, want the given network %s", kns.Spec, kns.Status, os.Getenv("GIVEN_NET"))
	}
	f.inNetwork(t, kns, pods...)
	f.haveGroups(t, pods, podGroup)
	vm := f.machine(t, "n1", os.Getenv("GIVEN_NET"), os.Getenv("GIVEN_CIDR"), machineGroup)
	stranger := elsewhere.on(t, "n2", "stranger")
	ping := "ping -c1 -W1 %s >/dev/null && echo ok"
	checks := []check{
		f.between(pods[0], pods[1]), f.between(pods[1], pods[2]),
		f.inPod(stranger).is("a pod to the machine's floating IP", fmt.Sprintf(ping, vm.public), "ok"),
	}
	for _, pod := range pods[:2] {
		name, ip := pod.Name+" on "+pod.Spec.NodeName, pod.Status.PodIP
		checks = append(checks,
			vm.is("the machine to pod "+name, fmt.Sprintf(ping, ip), "ok"),
			vm.is("the machine to pod "+name+" by TCP", strings.TrimSuffix(get("http://"+ip+":8080/hostname"), " echo;"), pod.Name),
			f.inPod(pod).is("pod "+name+" to the machine", fmt.Sprintf(ping, vm.ip), "ok"))
	}
	all(t, append(checks, f.surroundings(t, pods[0], pods[1])...)...)

	if f.hasServices(t) {
		servers := f.servers(t, "web", 2)
		svc := f.service(t, "web")
		f.realised(t, svc)
		vm.all(t, svc.Spec.ClusterIP, servers)
	}

	vm.remove()
	f.removePods(t)
	f.ends(t)
	if _, err := subnets.Get(t.Context(), f.Neutron, os.Getenv("GIVEN_SUBNET")).Extract(); err != nil {
		t.Errorf("after the namespace is gone, of the subnet of its given network: %v", err)
	}
}

// segment is a network that a test makes for the nodes of a rack. It has a subnet of each family
// that the bed has.
type segment struct {
	network string
	subnets []string
	cidr    string // of IPv4
}

// rack makes a network whose subnets are on the pods' router, and which goes with the test's pods.
func (f *fixture) rack(t testing.TB, cidr, cidr6 string) segment {
	t.Helper()
	network := must(networks.Create(t.Context(), f.Neutron, networks.CreateOpts{Name: f.namespace}).Extract())(t)
	made := segment{network: network.ID, cidr: cidr}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.deletePods(ctx); err != nil {
			t.Error(err)
		}
		for _, subnet := range made.subnets {
			if _, err := routers.RemoveInterface(ctx, f.Neutron, os.Getenv("ROUTER"), routers.RemoveInterfaceOpts{SubnetID: subnet}).Extract(); err != nil {
				t.Error(err)
			}
		}
		// Its last port goes a moment after its pod.
		if err := cluster.Until(ctx, func() error { return networks.Delete(ctx, f.Neutron, network.ID).ExtractErr() }); err != nil {
			t.Errorf("deleting network %s: %v", network.ID, err)
		}
	})
	add := func(cidr string, version gophercloud.IPVersion) {
		subnet := must(subnets.Create(t.Context(), f.Neutron, subnets.CreateOpts{
			NetworkID: network.ID, Name: f.namespace, CIDR: cidr, IPVersion: version, EnableDHCP: gophercloud.Disabled,
		}).Extract())(t)
		must(routers.AddInterface(t.Context(), f.Neutron, os.Getenv("ROUTER"), routers.AddInterfaceOpts{SubnetID: subnet.ID}).Extract())(t)
		made.subnets = append(made.subnets, subnet.ID)
	}
	add(cidr, gophercloud.IPv4)
	if os.Getenv("NODE_CIDR6") != "" {
		add(cidr6, gophercloud.IPv6)
	}
	return made
}

// machine is a virtual machine's port in a network namespace of its own.
type machine struct {
	asker
	ip, public string
	remove     func() // may be called again
}

// plugMachine has a port on a node without Kuryr, as Nova would: node, namespace, port,
// MAC, address, gateway, MTU, database of the node's Open vSwitch.
const plugMachine = `
	set -eu
	dev=tap$(echo "$3" | cut -c1-11)
	ip netns add "$2"
	ip -n "$2" link set lo up
	ip -n "kuryr-bed-$1" link add "$dev" type veth peer name eth0 netns "$2"
	ip -n "kuryr-bed-$1" link set "$dev" up
	ip -n "$2" link set eth0 address "$4" mtu "$7" up
	ip -n "$2" addr add "$5" dev eth0
	ip -n "$2" route add default via "$6"
	nsenter --net="/run/netns/$2" ethtool -K eth0 tx off >/dev/null # as with pods by hand: hack/bed/README.md
	ovs-vsctl --timeout=30 --db="$8" --may-exist add-port br-int "$dev" -- set Interface "$dev" \
		external_ids:iface-id="$3" external_ids:attached-mac="$4" external_ids:iface-status=active`

// machine has a network namespace stand in for a virtual machine: a port of Neutron's on
// a node, with a floating IP.
func (f *fixture) machine(t testing.TB, node, network, cidr, group string) machine {
	t.Helper()
	ctx := t.Context()
	port := must(ports.Create(ctx, f.Neutron, portsbinding.CreateOptsExt{
		CreateOptsBuilder: ports.CreateOpts{NetworkID: network, Name: f.namespace, DeviceOwner: "compute:check", SecurityGroups: &[]string{group}},
		HostID:            node,
	}).Extract())(t)
	netns, ip := "kuryr-vm-"+rand.String(5), port.FixedIPs[0].IPAddress
	ovs := os.Getenv("OVS_" + strings.ToUpper(node))
	gone := false
	m := machine{ip: ip}
	m.asker = func(ctx context.Context, script string) (string, error) {
		return cluster.OnMachine(ctx, "nsenter", "--net=/run/netns/"+netns, "sh", "-c", script)
	}
	m.remove = func() {
		if gone {
			return
		}
		gone = true
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := cluster.OnMachine(ctx, "ovs-vsctl", "--timeout=30", "--db="+ovs, "--if-exists", "del-port", "br-int", "tap"+port.ID[:11])
		if _, err2 := cluster.OnMachine(ctx, "ip", "netns", "del", netns); err == nil {
			err = err2
		}
		if err2 := ports.Delete(ctx, f.Neutron, port.ID).ExtractErr(); err == nil { // and its floating IP becomes free
			err = err2
		}
		if err != nil {
			t.Errorf("removing the machine of port %s: %v", port.ID, err)
		}
	}
	t.Cleanup(m.remove)
	first, length, _ := strings.Cut(cidr, "/")
	gateway := strings.TrimSuffix(first, "0") + "1"
	must(cluster.OnMachine(ctx, "sh", "-c", plugMachine, "sh", node, netns, port.ID, port.MACAddress, ip+"/"+length, gateway, os.Getenv("POD_MTU"), ovs))(t)
	public := must(floatingips.Create(ctx, f.Neutron, floatingips.CreateOpts{FloatingNetworkID: os.Getenv("EXT_NET"), PortID: port.ID}).Extract())(t)
	t.Cleanup(func() {
		if err := floatingips.Delete(context.Background(), f.Neutron, public.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
	})
	m.public = public.FloatingIP
	return m
}

// letsGroup has a security group let in the ports of another.
func (f *fixture) letsGroup(t testing.TB, group, other string) {
	t.Helper()
	for _, family := range []rules.RuleEtherType{rules.EtherType4, rules.EtherType6} {
		must(rules.Create(t.Context(), f.Neutron, rules.CreateOpts{
			SecGroupID: group, Direction: rules.DirIngress, EtherType: family, RemoteGroupID: other,
		}).Extract())(t)
	}
}

// letsPrefix has a security group let in a prefix.
func (f *fixture) letsPrefix(t testing.TB, group, prefix string) {
	t.Helper()
	family := rules.EtherType4
	if strings.Contains(prefix, ":") {
		family = rules.EtherType6
	}
	must(rules.Create(t.Context(), f.Neutron, rules.CreateOpts{
		SecGroupID: group, Direction: rules.DirIngress, EtherType: family, RemoteIPPrefix: prefix,
	}).Extract())(t)
}
