// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// entryVersion is the version of the journal's format. A daemon reads its own and older versions.
const entryVersion = 1

// entry is the journal's record of one attachment. It has everything that is needed to unplug,
// check or plug it again. It is the format on disk.
type entry struct {
	Version     int       `json:"version"`
	ContainerID string    `json:"containerID"`
	IfName      string    `json:"ifName"`
	Netns       string    `json:"netns"`
	Network     string    `json:"network"` // name of the CNI network
	Namespace   string    `json:"namespace,omitempty"`
	Pod         string    `json:"pod,omitempty"`
	PodUID      string    `json:"podUID,omitempty"`
	Since       time.Time `json:"since"`
	// FromArgs: the port came in CNI_ARGS; it has no KuryrPort.
	FromArgs bool `json:"fromArgs,omitempty"`
	// Deleted: the port must still be unplugged. At the time of the request the daemon or the
	// data path was not available.
	Deleted bool `json:"deleted,omitempty"`
	// Tagged: neutron-openvswitch-agent has put the port into its network.
	Tagged bool       `json:"tagged,omitempty"`
	Port   portRecord `json:"port"`
	// HostPorts of the pod, which the runtime sends with the ADD. Entries of older versions have none.
	// So the journal has exactly those of the pods that run here: finished and deleted pods have had
	// their DEL, and pods on the host network have no ADD.
	HostPorts []cni.HostPort `json:"hostPorts,omitempty"`
}

type portRecord struct {
	ID           string            `json:"id"`
	Type         string            `json:"type"`
	MAC          string            `json:"mac,omitempty"` // empty: see plug.Interface.HardwareAddr
	MTU          int               `json:"mtu,omitempty"`
	Addresses    []plug.Address    `json:"addresses"`
	Routes       []plug.Route      `json:"routes,omitempty"`
	Default      bool              `json:"default,omitempty"`
	Bridge       string            `json:"bridge,omitempty"`
	VLANID       int               `json:"vlanID,omitempty"`
	ParentPortID string            `json:"parentPortID,omitempty"`
	Details      map[string]string `json:"details,omitempty"`
}

// byAgent reports whether neutron-openvswitch-agent wires the port, and not OVN.
func (r portRecord) byAgent() bool {
	return (&v1.VIF{Type: r.Type, Details: r.Details}).ByAgent()
}

func (e entry) key() string { return attachmentKey(e.ContainerID, e.IfName) }

func attachmentKey(containerID, ifName string) string { return cni.FileName(containerID, ifName) }

// check returns why an entry that was read from disk cannot be used.
func (e entry) check() error {
	if e.Version < 1 || e.Version > entryVersion {
		return fmt.Errorf("version %d is unknown; versions up to %d are known", e.Version, entryVersion)
	}
	if e.ContainerID == "" || e.IfName == "" || e.Port.ID == "" || e.Port.Type == "" {
		return fmt.Errorf("containerID, ifName, port.id or port.type is missing")
	}
	if _, err := parseMAC(e.Port.MAC); err != nil {
		return err
	}
	for _, a := range e.Port.Addresses {
		if !a.Prefix.IsValid() {
			return fmt.Errorf("an address is missing its prefix")
		}
	}
	return nil
}

// iface returns the entry as a plug.Interface. The entry has passed check.
func (e entry) iface() plug.Interface {
	mac, _ := parseMAC(e.Port.MAC)
	i := plug.Interface{
		PortID: e.Port.ID, Type: e.Port.Type,
		ContainerID: e.ContainerID, Netns: e.Netns, Name: e.IfName,
		MAC: mac, MTU: e.Port.MTU, Addresses: e.Port.Addresses, Routes: e.Port.Routes, Default: e.Port.Default, Bridge: e.Port.Bridge,
		VLANID: e.Port.VLANID, ParentPortID: e.Port.ParentPortID, Details: e.Port.Details,
		Agent: e.Port.byAgent(), Hybrid: e.Port.Details[v1.DetailLinuxBridge] != "",
	}
	if e.Pod != "" {
		i.Pod = e.Namespace + "/" + e.Pod
	}
	return i
}

// attachment returns the entry in the form of a KuryrPort's status, where times have whole
// seconds.
func (e entry) attachment() *v1.Attachment {
	return &v1.Attachment{ContainerID: e.ContainerID, Interface: e.IfName, Since: metav1.NewTime(e.Since.Truncate(time.Second)), Tagged: e.Tagged}
}

// recordArgs returns the record of a port in CNI_ARGS.
func recordArgs(p *cni.Port) portRecord {
	r := portRecord{ID: p.ID, Type: p.Type, MTU: p.MTU}
	if p.MAC != nil {
		r.MAC = p.MAC.String()
	}
	for _, a := range p.Addresses {
		r.Addresses = append(r.Addresses, plug.Address(a))
		r.Default = r.Default || a.Gateway.IsValid()
	}
	return r
}

// recordPort returns the record of a KuryrPort. The API server has validated it; recordPort
// returns an error for what is still wrong.
func recordPort(p *v1.KuryrPort) (portRecord, error) {
	vif := p.Spec.VIF
	r := portRecord{
		ID: p.Name, Type: vif.Type, MAC: vif.MACAddress, MTU: int(vif.MTU), Bridge: vif.Bridge,
		VLANID: int(vif.VLANID), ParentPortID: vif.ParentPortID, Details: vif.Details,
	}
	if p.Spec.PodRef != nil {
		r.Default = p.Spec.PodRef.Default
	}
	// An empty address is wrong, too: the SDN knows the port's.
	if _, err := net.ParseMAC(vif.MACAddress); err != nil {
		return r, fmt.Errorf("spec.vif.macAddress of KuryrPort %s: %w", p.Name, err)
	}
	for _, a := range vif.Addresses {
		address, err := recordAddress(a)
		if err != nil {
			return r, fmt.Errorf("spec.vif.addresses of KuryrPort %s: %w", p.Name, err)
		}
		r.Addresses = append(r.Addresses, address)
	}
	routes, _ := vif.PodRoutes() // the controller reports the others
	for _, route := range routes {
		via, _ := netip.ParseAddr(route.Gateway) // empty: the destination is on the link
		r.Routes = append(r.Routes, plug.Route{Destination: netip.MustParsePrefix(route.Destination), Gateway: via})
	}
	return r, nil
}

func recordAddress(a v1.Address) (plug.Address, error) {
	ip, err := netip.ParseAddr(a.IP)
	if err != nil {
		return plug.Address{}, err
	}
	r := plug.Address{Prefix: netip.PrefixFrom(ip, int(a.PrefixLength))}
	if !r.Prefix.IsValid() {
		return r, fmt.Errorf("prefix length %d of %s", a.PrefixLength, a.IP)
	}
	if a.Gateway != "" {
		r.Gateway, err = netip.ParseAddr(a.Gateway)
	}
	if r.Gateway.IsUnspecified() { // clients of Neutron once wrote "no gateway" as 0.0.0.0
		r.Gateway = netip.Addr{}
	}
	return r, err
}

func parseMAC(text string) (net.HardwareAddr, error) {
	if text == "" {
		return nil, nil
	}
	return net.ParseMAC(text)
}
