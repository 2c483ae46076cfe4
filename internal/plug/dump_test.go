// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// The kernel says of a list that changed while it was told that it may not be
// whole. That is no fault of the port's.
func TestCheckWhileAddressesChange(t *testing.T) {
	d := bridges(t)
	ns := newNamespace(t)
	p := pod(t, "bridge", 1, ns)
	mustPlug(t, d, p)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for range 300 {
			if err := d.Check(t.Context(), p); err != nil {
				t.Errorf("Check = %v", err)
				return
			}
		}
	}()
	ns.do(t, func() error { return changeAddresses(stop) })
	mustUnplug(t, d, p)
}

// changeAddresses gives lo so many addresses that the kernel tells them in several
// parts, and one more in turns, until stop.
func changeAddresses(stop <-chan struct{}) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	address := func(k int) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(127, 1, byte(k>>8), byte(k)), Mask: net.CIDRMask(32, 32)}, Scope: int(netlink.SCOPE_HOST)}
	}
	for k := range 2000 {
		if err := netlink.AddrAdd(lo, address(k)); err != nil {
			return err
		}
	}
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
		if err := netlink.AddrAdd(lo, address(2000)); err != nil {
			return err
		}
		if err := netlink.AddrDel(lo, address(2000)); err != nil {
			return err
		}
	}
}
