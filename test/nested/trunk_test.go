// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nested

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/kuryr-go/kuryr/test/cluster"
)

const (
	host      = "n1"             // where the virtual machine runs
	elsewhere = "n2"             // the node of another pod
	nodesCIDR = "10.140.77.0/24" // of the virtual machines' network
	owner     = "compute:nested" // device_owner of the ports made here
	pods      = 2                // in the virtual machine
	firstID   = 101              // VLAN ID of the first pod
	patience  = 2 * time.Minute  // of a step, far above what it takes
	boots     = 5 * time.Minute  // of an emulated machine on a busy one

	netnsOf  = "kuryr-bed-" // and a node's name: its network namespace
	otherPod = "kuryr-bed-nested"
	device   = "tapnested" // the virtual machine's, on the host
)

// bed is the test bed, and what a test has made on it.
type bed struct {
	*cluster.Cluster
	t *testing.T
}

func onBed(t *testing.T) bed {
	t.Helper()
	if os.Getenv("KURYR_E2E") == "" || os.Getenv("KURYR_BED_KIND") != "real" {
		t.Skip("SKIPPED: no test bed with a real OpenStack: run `make e2e-nested` while one is up (make bed-up)")
	}
	c, err := cluster.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return bed{c, t}
}

// TestTrunk has a virtual machine on the trunk of the real Neutron plug two
// subports, and all reach all.
func TestTrunk(t *testing.T) {
	b := onBed(t)
	podSubnet, nodes := b.subnet(os.Getenv("POD_SUBNET")), b.nodesSubnet()
	parent := b.port(nodes, host)
	trunk := b.trunk(parent.ID)
	p := plan{Own: parent}
	for k := range pods {
		pod := b.port(podSubnet, "")
		pod.VLANID = firstID + k
		p.Pods = append(p.Pods, pod)
	}
	other := b.port(podSubnet, elsewhere)
	b.plug(other)
	p.Targets = []string{other.Address.Addr().String(), nodes.GatewayIP, "172.30.0.1"}

	b.tap(parent)
	b.addSubports(trunk, p.Pods)
	for _, pod := range append(p.Pods, parent, other) {
		b.active(pod)
	}
	vm := b.boot(p)
	vm.wait(t, ready)
	for k, pod := range p.Pods {
		b.reached(k, pod)
	}
	vm.end(t, p.Pods[0])
}

// reached checks that a pod of the virtual machine is reached from outside.
func (b bed) reached(k int, pod port) {
	b.t.Helper()
	ip := pod.Address.Addr().String()
	reach(b.t, fmt.Sprintf("the pod on %s to pod %d", elsewhere, k), func(ping ...string) (string, error) {
		return run(append([]string{"ip", "netns", "exec", otherPod}, ping...)...)
	}, ip)
	reach(b.t, fmt.Sprintf("the world outside to pod %d", k), run, ip)
	if err := transfer(net.JoinHostPort(ip, fmt.Sprint(sinkPort))); err != nil {
		b.t.Errorf("TCP to pod %d: %v", k, err)
	}
}

func (b bed) subnet(id string) subnets.Subnet {
	b.t.Helper()
	s, err := subnets.Get(b.t.Context(), b.Neutron, id).Extract()
	if err != nil {
		b.t.Fatalf("reading subnet %s: %v", id, err)
	}
	return *s
}

// later runs f at the end of the test; what it finds gone is well.
func (b bed) later(what string, f func(ctx context.Context) error) {
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), patience)
		defer cancel()
		if err := f(ctx); err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			b.t.Errorf("%s: %v", what, err)
		}
	})
}

// nodesSubnet makes a network for virtual machines, behind the pods' router.
func (b bed) nodesSubnet() subnets.Subnet {
	b.t.Helper()
	n, err := networks.Create(b.t.Context(), b.Neutron, networks.CreateOpts{Name: "nested-nodes"}).Extract()
	if err != nil {
		b.t.Fatalf("making a network: %v", err)
	}
	b.later("deleting the network", func(ctx context.Context) error { return networks.Delete(ctx, b.Neutron, n.ID).ExtractErr() })
	dhcp := false
	s, err := subnets.Create(b.t.Context(), b.Neutron, subnets.CreateOpts{
		NetworkID: n.ID, CIDR: nodesCIDR, IPVersion: 4, EnableDHCP: &dhcp,
	}).Extract()
	if err != nil {
		b.t.Fatalf("making a subnet: %v", err)
	}
	router := os.Getenv("ROUTER")
	if _, err := routers.AddInterface(b.t.Context(), b.Neutron, router, routers.AddInterfaceOpts{SubnetID: s.ID}).Extract(); err != nil {
		b.t.Fatalf("putting it behind router %s: %v", router, err)
	}
	b.later("taking it from behind the router", func(ctx context.Context) error {
		_, err := routers.RemoveInterface(ctx, b.Neutron, router, routers.RemoveInterfaceOpts{SubnetID: s.ID}).Extract()
		return err
	})
	return *s
}

// port makes one, bound to a node unless that is empty.
func (b bed) port(s subnets.Subnet, node string) port {
	b.t.Helper()
	made, err := ports.Create(b.t.Context(), b.Neutron, portsbinding.CreateOptsExt{
		HostID: node,
		CreateOptsBuilder: ports.CreateOpts{
			Name: "nested-e2e", NetworkID: s.NetworkID, DeviceOwner: owner,
			SecurityGroups: &[]string{os.Getenv("POD_SG")}, FixedIPs: []ports.IP{{SubnetID: s.ID}},
		},
	}).Extract()
	if err != nil {
		b.t.Fatalf("making a port: %v", err)
	}
	b.later("deleting a port", func(ctx context.Context) error { return ports.Delete(ctx, b.Neutron, made.ID).ExtractErr() })
	network := netip.MustParsePrefix(s.CIDR)
	var mtu int
	if _, err := fmt.Sscan(os.Getenv("POD_MTU"), &mtu); err != nil {
		b.t.Fatalf("POD_MTU=%q: %v", os.Getenv("POD_MTU"), err)
	}
	return port{
		ID: made.ID, MAC: made.MACAddress, MTU: mtu, Gateway: netip.MustParseAddr(s.GatewayIP),
		Address: netip.PrefixFrom(netip.MustParseAddr(made.FixedIPs[0].IPAddress), network.Bits()),
	}
}

func (b bed) trunk(parent string) string {
	b.t.Helper()
	trunk, err := trunks.Create(b.t.Context(), b.Neutron, trunks.CreateOpts{Name: "nested-e2e", PortID: parent}).Extract()
	if err != nil {
		b.t.Fatalf("making a trunk: %v", err)
	}
	b.later("deleting the trunk", func(ctx context.Context) error { return trunks.Delete(ctx, b.Neutron, trunk.ID).ExtractErr() })
	return trunk.ID
}

func (b bed) addSubports(trunk string, all []port) {
	b.t.Helper()
	var add trunks.AddSubportsOpts
	var remove trunks.RemoveSubportsOpts
	for _, p := range all {
		add.Subports = append(add.Subports, trunks.Subport{PortID: p.ID, SegmentationType: "vlan", SegmentationID: p.VLANID})
		remove.Subports = append(remove.Subports, trunks.RemoveSubport{PortID: p.ID})
	}
	if _, err := trunks.AddSubports(b.t.Context(), b.Neutron, trunk, add).Extract(); err != nil {
		b.t.Fatalf("adding subports: %v", err)
	}
	b.later("removing subports", func(ctx context.Context) error {
		_, err := trunks.RemoveSubports(ctx, b.Neutron, trunk, remove).Extract()
		return err
	})
}

func (b bed) active(p port) {
	b.t.Helper()
	started := time.Now()
	for {
		got, err := b.Port(b.t.Context(), p.ID)
		if err == nil && got.Status == "ACTIVE" {
			b.t.Logf("port %s is ACTIVE after %s", p.ID, time.Since(started).Round(10*time.Millisecond))
			return
		}
		if time.Since(started) > patience {
			b.t.Fatalf("port %s: %s after %s, want ACTIVE (%v)", p.ID, got.Status, patience, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// sh runs a command here.
func (b bed) sh(command ...string) {
	b.t.Helper()
	if out, err := run(command...); err != nil {
		b.t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}

// plugInto has Open vSwitch of a node take device as the port's.
func (b bed) plugInto(node, device string, p port) {
	b.t.Helper()
	db := "--db=" + os.Getenv("OVS_"+strings.ToUpper(node))
	b.sh("ovs-vsctl", "--timeout=30", db, "--may-exist", "add-port", "br-int", device, "--", "set", "Interface", device,
		"external_ids:iface-id="+p.ID, "external_ids:iface-status=active", fmt.Sprintf("external_ids:attached-mac=%q", p.MAC))
	b.t.Cleanup(func() { b.sh("ovs-vsctl", "--timeout=30", db, "--if-exists", "del-port", "br-int", device) })
}

// plug plugs a pod on a node that is no virtual machine.
func (b bed) plug(p port) {
	b.t.Helper()
	veth := "tap" + p.ID[:11]
	_, _ = run("ip", "netns", "del", otherPod)
	b.sh("ip", "netns", "add", otherPod)
	b.t.Cleanup(func() { _, _ = run("ip", "netns", "del", otherPod) })
	b.sh("ip", "-n", netnsOf+elsewhere, "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", otherPod)
	b.sh("ip", "-n", netnsOf+elsewhere, "link", "set", veth, "up")
	in := []string{"ip", "-n", otherPod}
	b.sh(append(in, "link", "set", "eth0", "address", p.MAC, "mtu", fmt.Sprint(p.MTU), "up")...)
	b.sh(append(in, "address", "add", p.Address.String(), "dev", "eth0")...)
	b.sh(append(in, "route", "add", "default", "via", p.Gateway.String())...)
	// The switch's data path is in user space and takes unfinished checksums for wrong.
	b.sh("ip", "netns", "exec", otherPod, "ethtool", "-K", "eth0", "tx", "off")
	b.plugInto(elsewhere, veth, p)
}

// tap makes the virtual machine's end on the host.
func (b bed) tap(p port) {
	b.t.Helper()
	in := []string{"ip", "-n", netnsOf + host}
	_, _ = run(append(in, "link", "del", device)...)
	b.sh(append(in, "tuntap", "add", device, "mode", "tap")...)
	b.t.Cleanup(func() { _, _ = run(append(in, "link", "del", device)...) })
	b.sh(append(in, "link", "set", device, "mtu", "1500", "up")...)
	b.plugInto(host, device, p)
}

// machine is the running virtual machine.
type machine struct {
	lines chan string // of its console
	done  chan error
}

// boot starts it, with this test binary and the plan in it.
func (b bed) boot(p plan) machine {
	b.t.Helper()
	files := b.t.TempDir()
	data, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(filepath.Join(files, "plan.json"), data, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.sh("cp", "/proc/"+fmt.Sprint(os.Getpid())+"/exe", filepath.Join(files, "nested.test"))
	job := "KURYR_NESTED_PLAN=/plan.json /nested.test -test.v -test.run TestInTheVirtualMachine"
	// No offloads: the switch would see what is still to be done.
	cmd := exec.CommandContext(b.t.Context(), "ip", "netns", "exec", netnsOf+host,
		filepath.Join("..", "..", "hack", "e2e-nested.sh"), "boot", job, files,
		"-netdev", "tap,id=nic,ifname="+device+",script=no,downscript=no,vhost=off,vnet_hdr=off",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=nic,mac=%s,romfile=", p.Own.MAC))
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatalf("starting the virtual machine: %v", err)
	}
	vm := machine{make(chan string, 10_000), make(chan error, 1)}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			fmt.Println("  machine:", s.Text())
			vm.lines <- s.Text()
		}
		close(vm.lines)
		vm.done <- cmd.Wait()
	}()
	return vm
}

// wait waits for a line of the console.
func (m machine) wait(t *testing.T, want string) {
	t.Helper()
	late := time.After(boots)
	for {
		select {
		case line, ok := <-m.lines:
			if !ok {
				t.Fatalf("the virtual machine has ended before it said %q: %v", want, <-m.done)
			}
			if strings.Contains(line, want) {
				return
			}
		case <-late:
			t.Fatalf("the virtual machine has not said %q within %s", want, boots)
		}
	}
}

// end tells the machine to end, by one of its pods, and wants it content.
func (m machine) end(t *testing.T, pod port) {
	t.Helper()
	c, err := net.DialTimeout("tcp", net.JoinHostPort(pod.Address.Addr().String(), fmt.Sprint(endPort)), patience)
	if err != nil {
		t.Errorf("telling the virtual machine to end: %v", err)
	} else {
		_ = c.Close()
	}
	select {
	case err := <-m.done:
		if err != nil {
			t.Errorf("the virtual machine: %v", err)
		}
	case <-time.After(boots):
		t.Error("the virtual machine does not end")
	}
}
