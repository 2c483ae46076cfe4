// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// If a list changes while the kernel returns it, the kernel reports that it may be incomplete.
// That is no fault of the port.
func TestCheckWhileAddressesChange(t *testing.T) {
	d := bridges(t)
	ns := newNamespace(t)
	p := pod(t, "bridge", 1, ns)
	mustPlug(t, d, p)
	ns.do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for k := range many {
			if err := netlink.AddrAdd(lo, address(k)); err != nil {
				return err
			}
		}
		return nil
	})
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

// many is a number of addresses that the kernel returns in several parts.
const many = 1000

func address(k int) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(127, 1, byte(k>>8), byte(k)), Mask: net.CIDRMask(32, 32)}, Scope: int(netlink.SCOPE_HOST)}
}

// changeAddresses adds an address to lo and removes it, in turns until stop. Most attempts to
// list the addresses succeed, even if everything is slow.
func changeAddresses(stop <-chan struct{}) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := netlink.AddrList(lo, netlink.FAMILY_ALL); err != nil {
		return err
	}
	pause := 5 * time.Since(began)
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(pause):
		}
		if err := netlink.AddrAdd(lo, address(many)); err != nil {
			return err
		}
		if err := netlink.AddrDel(lo, address(many)); err != nil {
			return err
		}
	}
}
