// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// machinesBed is an idle bed. Its nodes with the label vm=yes are virtual machines.
func machinesBed(t *testing.T) *bed {
	b := idleBed(t)
	b.current.Nodes = []config.NodePorts{{NodeSelector: labelled("vm", "yes"), VIFType: config.VIFTypeVLAN}}
	b.set(func(*settings.Settings) {})
	b.label(nodeNamed(node), "vm", "yes")
	b.nodeStatus(node, machineAddr, true)
	return b
}

func onNode(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

// TestNodesOfTwoKinds: labels decide how a node's ports are plugged. The machine of a virtual node
// is looked up once. A process that finds a pool does not look it up again.
func TestNodesOfTwoKinds(t *testing.T) {
	b := machinesBed(t)
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.create(nodeNamed("node-2"))
	b.start()
	metal := b.bound(b.pod("metal", onNode("node-2")))
	if metal.Spec.VIF.Type != "ovs" || metal.Spec.VIF.ParentPortID != "" {
		t.Errorf("the port on bare metal is %+v", metal.Spec.VIF)
	}
	if n := b.cloud.Calls(memory.ParentPort); n != 0 {
		t.Errorf("%d machines were looked for before a pod needed one", n)
	}
	first := b.bound(b.pod("first"))
	if vif := first.Spec.VIF; vif.Type != "vlan" || vif.ParentPortID != machine || vif.VLANID == 0 {
		t.Errorf("the port on the machine is %+v", vif)
	}
	if key := b.poolOf(first).Spec.Key; key.ParentPortID != machine || key.VIFType != "vlan" {
		t.Errorf("the key of its pool is %+v", key)
	}
	b.stop()
	b.start()
	b.bound(b.pod("second"))
	if n := b.cloud.Calls(memory.ParentPort); n != 1 {
		t.Errorf("the machine was looked for %d times, want 1", n)
	}
	b.label(nodeNamed(node), "vm", "")
	third := b.bound(b.pod("third"))
	if third.Spec.VIF.Type != "ovs" {
		t.Errorf("the port on the node that is no machine any more is %+v", third.Spec.VIF)
	}
	b.settled(4)
}

// TestMachineNotFound: pods wait, with the reason in an Event, until the machine is found.
func TestMachineNotFound(t *testing.T) {
	b := machinesBed(t)
	b.start()
	pod := b.pod("web")
	b.mentions("the Event", b.eventOn("web", "ParentPortUnknown"), "node "+node, machineAddr, "parent of a trunk")
	b.mentions("the node's Event", b.eventOn(node, "ParentPortUnknown"), machineAddr)
	late := b.pod("late")
	b.mentions("the Event", b.eventOn("late", "ParentPortUnknown"), machineAddr)
	if b.cloud.Ports() != 0 {
		t.Errorf("there are %d ports", b.cloud.Ports())
	}
	b.cloud.AddMachine(memory.Machine{PortID: "plain", SubnetID: machineNet, Address: machineAddr})
	b.never("a machine without a trunk will do", func() bool { return b.cloud.Ports() != 0 })
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.bound(pod)
	b.bound(late)
}

// TestMachineOfTwoAddresses: a dual-stack node lists its addresses in any order, and the machine's
// port may have only one of them.
func TestMachineOfTwoAddresses(t *testing.T) {
	b := machinesBed(t)
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	both := `{"status":{"addresses":[{"type":"InternalIP","address":"fd00::10"},{"type":"InternalIP","address":"` + machineAddr + `"}]}}`
	if err := b.client.Status().Patch(t.Context(), nodeNamed(node), client.RawPatch("application/merge-patch+json", []byte(both))); err != nil {
		t.Fatal(err)
	}
	b.start()
	if got := b.bound(b.pod("web")).Spec.VIF.ParentPortID; got != machine {
		t.Errorf("the port hangs on %s, want %s", got, machine)
	}
}

// TestTwoMachinesOfOneAddress: the configuration decides which of the two machines is meant.
func TestTwoMachinesOfOneAddress(t *testing.T) {
	b := machinesBed(t)
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.cloud.AddMachine(memory.Machine{PortID: "other", SubnetID: "other-net", Address: machineAddr, Trunk: true})
	b.start()
	pod := b.pod("web")
	b.mentions("the Event", b.eventOn("web", "ParentPortUnknown"), "2 ports", "parentSubnetIDs")
	b.set(func(s *settings.Settings) {
		s.Nodes = []config.NodePorts{{NodeSelector: labelled("vm", "yes"), VIFType: config.VIFTypeVLAN, ParentSubnetIDs: []string{machineNet}}}
	})
	if got := b.bound(pod).Spec.VIF.ParentPortID; got != machine {
		t.Errorf("the port hangs on %s, want %s", got, machine)
	}
}

// TestForeignMachines: a port of another project, or of another server than the node's providerID
// names, is not the node's. That holds for whatever address the kubelet reports.
func TestForeignMachines(t *testing.T) {
	const server = "8d4b3f0a-7f2e-4a52-9d75-5d6a1d5b7c11"
	for name, foreign := range map[string]memory.Machine{
		"another project": {PortID: "theirs", SubnetID: machineNet, Address: machineAddr, Trunk: true, Server: server, Project: "theirs"},
		"another server":  {PortID: "theirs", SubnetID: machineNet, Address: machineAddr, Trunk: true, Server: "another"},
	} {
		for _, providerID := range []string{"openstack:///" + server, "openstack://RegionOne/" + server} {
			t.Run(name+" "+providerID, func(t *testing.T) {
				b := machinesBed(t)
				b.patchSpec(node, map[string]any{"providerID": providerID})
				b.cloud.AddMachine(foreign)
				b.start()
				pod := b.pod("web")
				b.mentions("the Event", b.eventOn("web", "ParentPortUnknown"), machineAddr, "parentProjectID")
				b.never("a port on the other's machine", func() bool { return b.cloud.Ports() != 0 })
				b.cloud.RemoveMachine("theirs")
				b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true, Server: server})
				if got := b.bound(pod).Spec.VIF.ParentPortID; got != machine {
					t.Errorf("the port hangs on %s, want the machine's", got)
				}
			})
		}
	}
}

// TestMachinesOfAProject: the configuration names the project. A node without a providerID, or with
// that of another kind of cloud, is identified by its address and project alone.
func TestMachinesOfAProject(t *testing.T) {
	for _, providerID := range []string{"", "metal3://default/node"} {
		t.Run("providerID "+providerID, func(t *testing.T) {
			b := machinesBed(t)
			if providerID != "" {
				b.patchSpec(node, map[string]any{"providerID": providerID})
			}
			b.cloud.AddMachine(memory.Machine{PortID: "other", SubnetID: machineNet, Address: machineAddr, Trunk: true, Server: "one"})
			b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: "other-net", Address: machineAddr, Trunk: true, Server: "two", Project: "machines"})
			b.set(func(s *settings.Settings) {
				s.Nodes = []config.NodePorts{{NodeSelector: labelled("vm", "yes"), VIFType: config.VIFTypeVLAN, ParentProjectID: "machines"}}
			})
			b.start()
			if got := b.bound(b.pod("web")).Spec.VIF.ParentPortID; got != machine {
				t.Errorf("the port hangs on %s, want %s", got, machine)
			}
		})
	}
}

// patchSpec changes the spec of a node.
func (b *bed) patchSpec(name string, spec map[string]any) {
	b.t.Helper()
	if err := b.client.Patch(b.t.Context(), nodeNamed(name), mergePatch(b.t, map[string]any{"spec": spec})); err != nil {
		b.t.Fatal(err)
	}
}

// TestMachineGetsAnotherPort: the new port is found when the SDN refuses the old one.
func TestMachineGetsAnotherPort(t *testing.T) {
	b := machinesBed(t)
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.start()
	b.bound(b.pod("first"))
	b.cloud.RemoveMachine(machine)
	b.cloud.AddMachine(memory.Machine{PortID: "another", SubnetID: machineNet, Address: machineAddr, Trunk: true})
	if got := b.bound(b.pod("second")).Spec.VIF.ParentPortID; got != "another" {
		t.Errorf("the port hangs on %s, want the machine's new port", got)
	}
}

// machineAnew replaces the node's machine: the new one has another port and address. kubelet uses
// the existing Node.
func (b *bed) machineAnew(address string) {
	b.t.Helper()
	b.cloud.RemoveMachine(machine)
	b.cloud.AddMachine(memory.Machine{PortID: "another", SubnetID: machineNet, Address: address, Trunk: true})
	b.nodeStatus(node, address, true)
}

// TestMachineAnewUnderItsNode: none of the old machine's ports serves any more. Pods that are not
// plugged get other ports. Plugged pods get an Event, and other ports once they are unplugged.
func TestMachineAnewUnderItsNode(t *testing.T) {
	b := warmMachine(t)
	b.start()
	plugged := b.pod("plugged")
	b.attach(b.bound(plugged), true)
	b.settled(3)
	b.machineAnew("192.0.2.99")
	elsewhere := func(pod *corev1.Pod) func() bool {
		return func() bool {
			port := b.portOf(pod)
			return port != nil && port.Spec.VIF.ParentPortID == "another"
		}
	}
	b.eventually("a new pod has a port of the new machine", elsewhere(b.pod("second")))
	var first corev1.Pod
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "first"}, &first); err != nil {
		t.Fatal(err)
	}
	b.eventually("a pod of before has one, too", elsewhere(&first))
	b.mentions("the Event", b.eventOn("plugged", "ParentPortChanged"), machine, "another", "Delete the pod")
	b.attach(b.portOf(plugged), false) // the new daemon does not know it
	b.eventually("and so has the one that was plugged", elsewhere(plugged))
	b.eventually("no port of the former machine is left", func() bool {
		return !slices.ContainsFunc(b.ports(), func(p v1.KuryrPort) bool { return p.Spec.VIF.ParentPortID == machine })
	})
}

// TestMachineAnewWhileNobodyLooked: a new process also notices the new machine, before any pod
// needs it. The address may be the same: the firmware has another ID.
func TestMachineAnewWhileNobodyLooked(t *testing.T) {
	firmware := func(b *bed, id string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"nodeInfo":{"systemUUID":"`+id+`"}}}`))
		if err := b.client.Status().Patch(t.Context(), nodeNamed(node), patch); err != nil {
			t.Fatal(err)
		}
	}
	b := machinesBed(t)
	firmware(b, "one")
	b.warm()
	b.machineAnew(machineAddr)
	firmware(b, "two")
	b.start()
	b.eventually("all ports are the new machine's", func() bool {
		all := b.ports()
		return len(all) == 2 && !slices.ContainsFunc(all, func(p v1.KuryrPort) bool { return p.Spec.VIF.ParentPortID != "another" })
	})
}

// TestNodeGetsAnotherAddress: the machine is looked up, and is the same.
func TestNodeGetsAnotherAddress(t *testing.T) {
	b := warmMachine(t)
	b.start()
	before := b.cloud.Calls(memory.ParentPort)
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: "192.0.2.99", Trunk: true})
	b.nodeStatus(node, "192.0.2.99", true)
	b.eventually("the machine is looked for", func() bool { return b.cloud.Calls(memory.ParentPort) == before+1 })
	if port := b.bound(b.pod("second")); port.Spec.VIF.ParentPortID != machine {
		t.Errorf("the port hangs on %s, want %s", port.Spec.VIF.ParentPortID, machine)
	}
	if n := b.cloud.Calls(memory.DeletePort); n != 0 {
		t.Errorf("%d ports of the machine were deleted", n)
	}
}

// again replaces the Node by another object of the same name.
func (b *bed) again() {
	b.t.Helper()
	b.delete(nodeNamed(node))
	b.create(nodeNamed(node))
	b.label(nodeNamed(node), "vm", "yes")
	b.nodeStatus(node, machineAddr, true)
}

// warmMachine is a stopped bed whose node is a virtual machine with a pod and a free port.
func warmMachine(t *testing.T) *bed {
	t.Helper()
	b := machinesBed(t)
	b.warm()
	return b
}

// warm gives the machine of b's node a pod's port and a free one.
func (b *bed) warm() {
	b.t.Helper()
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL = 1, metav1.Duration{Duration: time.Hour} })
	b.start()
	b.bound(b.pod("first"))
	b.settled(2)
	b.eventually("one is available", func() bool { return b.pools()[0].Status.Available == 1 })
	b.stop()
}

// TestNodeIsAnotherMachine: a node that was deleted and created while no controller ran is another
// machine. Its pods get no port of the old machine.
func TestNodeIsAnotherMachine(t *testing.T) {
	b := warmMachine(t)
	b.again()
	b.cloud.RemoveMachine(machine)
	b.cloud.AddMachine(memory.Machine{PortID: "another", SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.start()
	if got := b.bound(b.pod("second")).Spec.VIF.ParentPortID; got != "another" {
		t.Errorf("the port hangs on %s, want the new machine's port", got)
	}
}

// TestNodeIsTheSameMachine: a node that was deleted and created is looked up once. A later process
// knows its machine from the pool. The pool is older than the node, and so are the ports.
func TestNodeIsTheSameMachine(t *testing.T) {
	b := warmMachine(t)
	made := b.pools()[0].CreationTimestamp
	b.eventually("a new node is a later one", func() bool { return time.Since(made.Time) > time.Second })
	b.again()
	b.start()
	b.bound(b.pod("second"))
	b.settled(3)
	b.stop()
	b.start()
	b.bound(b.pod("third"))
	b.settled(4)
	if n := b.cloud.Calls(memory.ParentPort); n != 2 {
		t.Errorf("the machine was looked for %d times, want 2: once for each node", n)
	}
	if n := b.cloud.Calls(memory.DeletePort); n != 0 {
		t.Errorf("%d ports of the machine were deleted", n)
	}
}

// TestMachineThatIsNotKnownYet: while a node's machine is unknown, none of its ports is deleted,
// whatever the levels are. Once it is known, the ports serve.
func TestMachineThatIsNotKnownYet(t *testing.T) {
	b := warmMachine(t)
	free := b.free().Name
	made := b.pools()[0].CreationTimestamp
	b.eventually("a new node is a later one", func() bool { return time.Since(made.Time) > time.Second })
	b.again()
	b.fail(memory.ParentPort, sdn.ErrUnavailable)
	b.set(func(s *settings.Settings) { s.Pools = config.Pools{Batch: 1} })
	b.start()
	pod := b.pod("second")
	b.eventOn("second", "ParentPortUnknown")
	b.never("a port goes", func() bool { return b.cloud.Calls(memory.DeletePort) != 0 || len(b.ports()) != 2 })
	b.fail(memory.ParentPort, nil)
	if got := b.bound(pod).Name; got != free {
		t.Errorf("the pod has port %s, want %s, which was free all the time", got, free)
	}
}

// TestSubportIsPutBack: a KuryrPort that is deleted under a living pod on a machine is restored
// with the same port.
func TestSubportIsPutBack(t *testing.T) {
	b := machinesBed(t)
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	b.eventually("the pod is annotated", func() bool { return b.annotation(pod) != "" })
	b.delete(port)
	var again *v1.KuryrPort
	b.eventually("there is a new object", func() bool {
		again = b.portOf(pod)
		return again != nil && again.UID != port.UID
	})
	if again.Name != port.Name || again.Spec.VIF.VLANID != port.Spec.VIF.VLANID || again.Spec.VIF.ParentPortID != machine {
		t.Errorf("the pod has port %s with %+v, want %s with %+v", again.Name, again.Spec.VIF, port.Name, port.Spec.VIF)
	}
	b.settled(1)
}

// TestWarmUpOfNodes: the pool of a node is filled as soon as the node takes pods.
func TestWarmUpOfNodes(t *testing.T) {
	b := idleBed(t)
	b.current.Pools.Min, b.current.Pools.WarmUp = 2, true
	b.set(func(*settings.Settings) {})
	cordoned := nodeNamed("node-2")
	cordoned.Spec.Unschedulable = true
	b.create(cordoned)
	b.nodeStatus("node-2", machineAddr, true)
	b.start()
	b.never("a port for a node that is not ready", func() bool { return b.cloud.Ports() != 0 })
	b.nodeStatus(node, machineAddr, true)
	b.settled(2)
	b.never("a port for a node that takes no pods", func() bool { return b.cloud.Ports() != 2 })
	if err := b.client.Patch(t.Context(), cordoned, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":false}}`))); err != nil {
		t.Fatal(err)
	}
	b.settled(4)
	calls := b.cloud.Calls(memory.CreatePorts)
	b.nodeStatus(node, machineAddr, false)
	b.nodeStatus(node, machineAddr, true)
	b.never("a second warm-up", func() bool { return b.cloud.Calls(memory.CreatePorts) != calls })
}

// TestWarmUpOfMachines: the machine is looked up without a pod.
func TestWarmUpOfMachines(t *testing.T) {
	b := machinesBed(t)
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.WarmUp = 2, true })
	b.start()
	b.settled(2)
	if got := len(b.cloud.Subports(machine)); got != 2 {
		t.Errorf("the machine has %d subports, want 2", got)
	}
}
