// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// A port in CNI_ARGS has a MAC address only if they give one.
func TestPortWithoutAMAC(t *testing.T) {
	for typ, prepare := range map[string]func(t *testing.T) (d plug.Driver, told func(plug.Interface) string){
		"bridge": func(t *testing.T) (plug.Driver, func(plug.Interface) string) {
			return bridges(t), func(p plug.Interface) string { return p.HardwareAddr().String() }
		},
		"midonet": func(t *testing.T) (plug.Driver, func(plug.Interface) string) {
			d, r := newRecorder(t)
			return d, func(plug.Interface) string {
				all := regexp.MustCompile(`KURYR_MAC=(\S*)`).FindAllStringSubmatch(r.read(t, "calls"), -1)
				return all[len(all)-1][1]
			}
		},
	} {
		t.Run(typ, func(t *testing.T) {
			nodetest.Need(t)
			d, told := prepare(t)
			ns, other := newNamespace(t), newNamespace(t)
			p := pod(t, typ, 40, ns)
			p.MAC = nil
			has := func(p plug.Interface, ns namespace, what string) {
				t.Helper()
				mustPlug(t, d, p)
				if err := d.Wait(t.Context(), p); err != nil {
					t.Errorf("Wait = %v", err)
				}
				mustCheck(t, d, p)
				mac := p.HardwareAddr().String()
				if got := ns.run(t, "ip", "link", "show", "eth0"); !strings.Contains(got, mac) || told(p) != mac {
					t.Errorf("%s: it has %s, the data path is told %s; want %s", what, got, told(p), mac)
				}
			}
			has(p, ns, "plugged")
			has(p, ns, "plugged again")
			p.ContainerID, p.Netns = "another", other.path
			has(p, other, "in another sandbox")
			q := pod(t, typ, 41, ns)
			q.MAC = nil
			has(q, ns, "another port")
			if mac := q.HardwareAddr(); mac.String() == p.HardwareAddr().String() || mac[0]&3 != 2 {
				t.Errorf("MAC addresses %s and %s: want two, local and unicast", mac, p.HardwareAddr())
			}
			mustUnplug(t, d, p)
			mustUnplug(t, d, q)
		})
	}
}

// OVN drops packets from another MAC address than the port's own. So such a pod would start and
// reach no other host.
func TestPortWithoutAMACOnOVN(t *testing.T) {
	v := newVswitch(t)
	v.ctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-remote=unix:/nowhere")
	p := pod(t, "ovs", 42, newNamespace(t))
	p.MAC = nil
	if err := v.driver(t).Plug(t.Context(), p); !errors.Is(err, plug.ErrInvalid) || !strings.Contains(err.Error(), "no MAC address") {
		t.Errorf("Plug = %v, want ErrInvalid that says what is missing", err)
	}
	mustUnplug(t, v.driver(t), p)
}
