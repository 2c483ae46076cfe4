// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// A node plugs many ports in its life. The reporter forgets a port after its KuryrPort is
// deleted, whether it saw or missed that, and whether the port is plugged or not.
func TestReportsOfPortsGoneAreForgotten(t *testing.T) {
	for name, remove := range map[string]func(n *node, ports []string){
		"unplugged": func(n *node, ports []string) {
			for i, port := range ports {
				n.do(request("DEL", fmt.Sprint("c", i), ""))
				n.rests(port, "")
				n.api.remove(port)
			}
		},
		"at once": func(n *node, ports []string) {
			for i, port := range ports {
				n.do(request("DEL", fmt.Sprint("c", i), ""))
				n.api.remove(port)
			}
		},
		"still plugged": func(n *node, ports []string) {
			for _, port := range ports {
				n.api.remove(port)
			}
		},
		"missed": func(n *node, ports []string) {
			n.api.setDown(true)
			for _, port := range ports {
				n.api.remove(port)
			}
			n.api.setDown(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t).start()
			var ports []string
			for i := range 5 {
				port := fmt.Sprintf("%08d-7495-4557-b7fc-3e293508dbc6", i)
				n.api.put(kuryrPort(port, uidA))
				req := request("ADD", fmt.Sprint("c", i), "/run/netns/a")
				n.do(req)
				n.rests(port, req.ContainerID)
				n.api.change(port, func(p *v1.KuryrPort) { p.Spec.PodRef = nil })
				n.eventually("the daemon has seen it", func() bool { return n.daemon.ports.port(port).Spec.PodRef == nil })
				ports = append(ports, port)
			}
			n.eventually("there is a report of each", func() bool { return n.reports() == len(ports) })
			remove(n, ports)
			n.eventually("all reports are forgotten", func() bool { return n.reports() == 0 })
		})
	}
}

// reports returns how many ports the reporter remembers.
func (n *node) reports() int {
	r := n.daemon.reporter
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.reported)
}
