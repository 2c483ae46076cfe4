// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// registry numbers the network namespaces that nested ports are plugged into. A namespace can
// then be found without a path. The kernel keeps a namespace's number (its nsid, as seen from the
// node's namespace) while the namespace exists. It answers for the devices of a namespace by that
// number.
//
// The kernel reuses numbers. Peers hold the lock while they are open, so that this process assigns
// no number between finding a device and removing it.
type registry struct{ mu sync.Mutex }

// register gives ns a number if it has none.
func (r *registry) register(h *netlink.Handle, ns netns) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	const any = -1
	if err := h.SetNetNsIdByFd(int(ns), any); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("numbering the network namespace: %w", err)
	}
	return nil
}

// peers reads all numbered namespaces, and the node's own, until close.
type peers struct {
	registry *registry
	h        *netlink.Handle
}

func openPeers(r *registry) (*peers, error) {
	h, err := openNetlink()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	return &peers{r, h}, nil
}

func (p *peers) close() {
	p.registry.mu.Unlock()
	p.h.Close()
}

// noID is the number of a namespace without one.
const noID = -1

// id returns the number of the namespace behind fd, or noID.
func (p *peers) id(fd int) int {
	id, err := p.h.GetNetNsIdByFd(fd)
	if err != nil {
		return noID
	}
	return id
}

// own returns the number of the node's namespace, or noID.
func (p *peers) own() int {
	id, err := p.h.GetNetNsIdByPid(os.Getpid())
	if err != nil {
		return noID
	}
	return id
}

// held is a device in a numbered namespace. With noID it is in the node's own.
type held struct {
	nsid int
	link netlink.Link
}

func (d held) String() string {
	a := d.link.Attrs()
	where := "of the node"
	if d.nsid != noID {
		where = fmt.Sprintf("in the network namespace with the nsid %d (ip netns list-id)", d.nsid)
	}
	return fmt.Sprintf("%s (MAC address %s, alias %q) %s", a.Name, a.HardwareAddr, a.Alias, where)
}

// find returns the devices of a kind in these namespaces that want accepts.
func (p *peers) find(ids []int, kind string, want func(netlink.Link) bool) ([]held, error) {
	var all []held
	for _, id := range ids {
		links, err := linksIn(id, kind)
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			if l.Type() == kind && want(l) {
				all = append(all, held{id, l})
			}
		}
	}
	return all, nil
}

// on reports whether the device's parent is that device of the node.
func (p *peers) on(d held, parent netlink.Link) bool {
	a := d.link.Attrs()
	if a.ParentIndex != parent.Attrs().Index {
		return false
	}
	if d.nsid == noID {
		return a.NetNsID == noID
	}
	return a.NetNsID != noID && a.NetNsID == p.own()
}

// remove removes a device that was found.
func (p *peers) remove(d held) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(d.link.Attrs().Index)
	if _, err := request(unix.RTM_DELLINK, unix.NLM_F_ACK, 0, msg, targetOf(d.nsid)...); err != nil && !gone(err) {
		return fmt.Errorf("removing %s: %w", d, err)
	}
	return nil
}

// ids returns the numbers of all namespaces. The node's is the first, and noID here.
func (p *peers) ids() ([]int, error) {
	const attrNSID = 1 // NETNSA_NSID of linux/net_namespace.h
	msgs, err := request(unix.RTM_GETNSID, unix.NLM_F_DUMP, unix.RTM_NEWNSID, nl.NewRtGenMsg())
	if err != nil {
		return nil, fmt.Errorf("listing the numbers of network namespaces: %w", err)
	}
	own := p.own()
	ids := []int{noID}
	for _, m := range msgs {
		attrs, err := nl.ParseRouteAttr(m[nl.DeserializeRtGenMsg(m).Len():])
		if err != nil {
			return nil, fmt.Errorf("reading the number of a network namespace: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type != attrNSID {
				continue
			}
			if id := int(int32(nl.NativeEndian().Uint32(a.Value))); id != own {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// linksIn returns a namespace's devices, at least those of a kind. A deleted namespace has none.
func linksIn(nsid int, kind string) ([]netlink.Link, error) {
	filter := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	filter.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	data := append(targetOf(nsid), filter)
	msgs, err := request(unix.RTM_GETLINK, unix.NLM_F_DUMP, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), data...)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the devices of the network namespace with the nsid %d: %w", nsid, err)
	}
	links := make([]netlink.Link, 0, len(msgs))
	for _, m := range msgs {
		l, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return nil, fmt.Errorf("reading a device: %w", err)
		}
		links = append(links, l)
	}
	return links, nil
}

func targetOf(nsid int) []nl.NetlinkRequestData {
	if nsid == noID {
		return nil
	}
	return []nl.NetlinkRequestData{nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(nsid)))}
}

// gone reports whether the device, or a namespace with that number, does not exist.
func gone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) }

// request sends a request to the kernel and returns its answers.
func request(typ, flags int, answer uint16, head nl.NetlinkRequestData, data ...nl.NetlinkRequestData) ([][]byte, error) {
	return dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(typ, flags)
		req.AddData(head)
		for _, d := range data {
			req.AddData(d)
		}
		return req.Execute(unix.NETLINK_ROUTE, answer)
	})
}

// dump reads a list from the kernel, and repeats that if the list changed meanwhile: an entry may
// be missing then (NLM_F_DUMP_INTR). After ten such tries it returns the error, and the namespace
// is handled later.
func dump[T any](list func() (T, error)) (all T, err error) {
	for range 10 {
		if all, err = list(); !errors.Is(err, nl.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}
