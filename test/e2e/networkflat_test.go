// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// The walk-through of the design of MidoNet's flat mode: each namespace gets a /16 of
// its own that all nodes share, a tenant may have several, CNI takes a port from its
// arguments or looks it up, and Services are load balancers before the namespace's
// pods, public by floating IPs.
func TestFlatModeWalkThrough(t *testing.T) {
	long(t)
	f := withNetworks(t, mode(v1.NetworkFlat))
	second := f.beside(t, "second", mode(v1.NetworkFlat))
	b := tenantOf("B")
	other := f.beside(t, "tenant", mode(v1.NetworkFlat), project(b.project))
	timedOut := make(chan error, 1)
	if testing.Short() {
		close(timedOut)
	} else {
		go func() { timedOut <- f.timesOut(t.Context()) }()
	}
	defer func() {
		if err := <-timedOut; err != nil {
			t.Error(err)
		}
	}()

	// Each namespace: a /16 of its own, used by pods on both nodes.
	pods := f.pods(t, "a", "b", "c")
	neighbour := second.on(t, "n2", "d")
	stranger := other.on(t, "n1", "e")
	kns := f.network(t)
	f.isMade(t, kns, v1.NetworkFlat, families("NAMESPACE_CIDR"), os.Getenv("ROUTER"), os.Getenv("PROJECT"))
	other.isMade(t, other.network(t), v1.NetworkFlat, families("NAMESPACE_CIDR"), b.router, b.project)
	distinct(t, kns, second.network(t), other.network(t))
	f.inNetwork(t, kns, pods...)
	f.works(t, pods, neighbour)
	other.routeFromNodes(t, other.network(t))
	all(t, other.routed(t, stranger)...)
	all(t, f.apart(pods[0], stranger)) // a tenant's group lets in itself, the nodes and the machine

	if !f.hasServices(t) { // and no OVN, which ports in arguments need
		return
	}

	// CNI with the port in its arguments.
	f.plugsByArguments(t, kns, "n1", pods[1])

	// A Service: the cluster IP is the VIP, protocol and port the listener's, and its
	// selector finds the members.
	servers := f.servers(t, "web", 2)
	svc := f.service(t, "web")
	klb := f.realised(t, svc)
	id := must(f.clusterID(t.Context()))(t)
	if lb := must(f.LoadBalancers(t.Context(), id))(t)[klb.Status.LoadBalancers[0].ID]; lb.VipAddress != svc.Spec.ClusterIP {
		t.Errorf("load balancer %s has VIP %q, want the cluster IP %s", lb.ID, lb.VipAddress, svc.Spec.ClusterIP)
	}
	f.members(t, svc, "TCP:80", at(servers, 8080))
	f.members(t, svc, "UDP:80", at(servers, 8081))
	for _, from := range []asker{f.inPod(pods[0]), second.inPod(neighbour), f.byNode("n1")} {
		from.all(t, svc.Spec.ClusterIP, servers)
	}

	// Of type LoadBalancer: a floating IP, which the status shows.
	f.becomes(t, svc, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
	public := f.ingress(t, svc)
	asker(outside).all(t, public, servers)
}

// distinct checks that networks have prefixes of 16 bits that do not overlap.
func distinct(t testing.TB, all ...*v1.KuryrNetwork) {
	t.Helper()
	seen := map[netip.Prefix]string{}
	for _, kns := range all {
		prefix := must(netip.ParsePrefix(kns.Status.Subnets[0].CIDR))(t)
		if prefix.Bits() != 16 {
			t.Errorf("KuryrNetwork %s has %s, want a /16", kns.Name, prefix)
		}
		for other, name := range seen {
			if other.Overlaps(prefix) {
				t.Errorf("KuryrNetworks %s and %s have %s and %s, which overlap", name, kns.Name, other, prefix)
			}
		}
		seen[prefix] = kns.Name
	}
}

// routeFromNodes gives the nodes' router the routes that a KuryrNetwork names.
func (f *fixture) routeFromNodes(t testing.TB, kns *v1.KuryrNetwork) {
	t.Helper()
	if len(kns.Status.NodeRoutes) == 0 {
		t.Fatalf("KuryrNetwork %s names no routes for nodes: %+v", kns.Name, kns.Status)
	}
	for _, r := range kns.Status.NodeRoutes {
		route := []string{"ip", "-n", "kuryr-bed", "route", "replace", r.Destination, "via", r.Gateway, "dev", "br-ex", "mtu", "lock", os.Getenv("POD_MTU")}
		must(cluster.OnMachine(t.Context(), route...))(t)
		t.Cleanup(func() {
			if _, err := cluster.OnMachine(context.Background(), "ip", "-n", "kuryr-bed", "route", "del", r.Destination, "via", r.Gateway); err != nil {
				t.Error(err)
			}
		})
	}
}

// callCNI calls kuryr-cni on a node as a container runtime does: command, container,
// network namespace, arguments.
const callCNI = `
	echo '{"cniVersion": "0.1.0", "name": "kuryr", "type": "kuryr-cni"}' |
		CNI_COMMAND="$0" CNI_CONTAINERID="$1" CNI_NETNS="$2" CNI_ARGS="$3" CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin /opt/cni/bin/kuryr-cni 2>&1`

// plugsByArguments has CNI plug a port whose data is in CNI_ARGS, without a look-up, as
// the design has it. A pod reaches what is plugged.
func (f *fixture) plugsByArguments(t testing.TB, kns *v1.KuryrNetwork, node string, from *corev1.Pod) {
	t.Helper()
	ctx := t.Context()
	port := must(ports.Create(ctx, f.Neutron, portsbinding.CreateOptsExt{
		CreateOptsBuilder: ports.CreateOpts{NetworkID: kns.Status.NetworkID, Name: f.namespace, DeviceOwner: "compute:check", SecurityGroups: &[]string{os.Getenv("POD_SG")}},
		HostID:            node,
	}).Extract())(t)
	subnet, ip := kns.Status.Subnets[0], port.FixedIPs[0].IPAddress
	address := ip + subnet.CIDR[strings.Index(subnet.CIDR, "/"):]
	netns, container := "/run/netns/walk-"+port.ID[:8], "walk-"+port.ID[:8]
	arguments := fmt.Sprintf(`K8S_POD_NAMESPACE=%s;K8S_POD_NAME=by-arguments;K8S_POD_INFRA_CONTAINER_ID=%s;`+
		`PORT_UUID=%s,IPV4=%s,GW=%s,PORT_TYPE=ovs,MAC=%s,MTU=%d`, f.namespace, container, port.ID, address, subnet.Gateway, port.MACAddress, kns.Status.MTU)
	call := func(ctx context.Context, command string) (string, error) {
		return f.OnNode(ctx, node, "sh", "-c", callCNI, command, container, netns, arguments)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := call(ctx, "DEL")
		_, err2 := f.OnNode(ctx, node, "ip", "netns", "del", container)
		if err = errors.Join(err, err2, ports.Delete(ctx, f.Neutron, port.ID).ExtractErr()); err != nil {
			t.Errorf("unplugging port %s: %v", port.ID, err)
		}
	})
	must(f.OnNode(ctx, node, "ip", "netns", "add", container))(t)
	out := must(call(ctx, "ADD"))(t)
	var result struct{ IP4 struct{ IP, Gateway string } }
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.IP4.IP != address || result.IP4.Gateway != subnet.Gateway {
		t.Errorf("ADD of %s answers %s (%v), want %s by %s", arguments, out, err, address, subnet.Gateway)
	}
	all(t, f.inPod(from).is("pod "+from.Name+" to the port of arguments", "ping -c1 -W1 "+ip+" >/dev/null && echo ok", "ok"))
}

// timesOut has CNI look for the port of a pod that has none: the answer is an error with
// the code for that, once the time for it is over.
func (f *fixture) timesOut(ctx context.Context) error {
	const container = "walk-without-port"
	if _, err := f.OnNode(ctx, "n2", "ip", "netns", "add", container); err != nil {
		return err
	}
	arguments := "K8S_POD_NAMESPACE=" + f.namespace + ";K8S_POD_NAME=no-such-pod;K8S_POD_INFRA_CONTAINER_ID=" + container
	out, err := f.OnNode(ctx, "n2", "sh", "-c", callCNI+` || true`, "ADD", container, "/run/netns/"+container, arguments)
	_, err2 := f.OnNode(ctx, "n2", "ip", "netns", "del", container)
	var answer struct{ Code int }
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Code != 101 {
		return fmt.Errorf("ADD of a pod without a port answers %s (%w), want code 101", out, errors.Join(errNotYet, err))
	}
	return nil
}
