// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/test/cluster"
)

// A UDP client that keeps its source port and does not cease to send gets to another
// endpoint when its own has gone, if OVN is told to forget connections to what is no longer
// behind a load balancer. An operator tells it that; neither Kuryr nor Octavia takes it back.
func TestServiceUDPEndpointGoes(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	svc := f.service(t, "web")
	f.members(t, svc, "UDP:80", at(pods, 8081))
	balancer := f.realised(t, svc).Status.LoadBalancers[0].ID
	ovn := func(args ...string) string {
		t.Helper()
		return must(cluster.OnMachine(t.Context(), append([]string{"ovn-nbctl", "--bare"}, args...)...))(t)
	}
	row := ovn("--columns=_uuid", "find", "load_balancer", "name="+balancer, "protocol=udp")
	ovn("set", "load_balancer", row, "options:ct_flush=true")

	from := f.on(t, "n1", "client")
	ask := func() (string, error) {
		out, err := f.Exec(t.Context(), f.namespace, from.Name, "sh", "-c",
			fmt.Sprintf("echo hostname | nc -u -w 2 -p 12345 %s 80", svc.Spec.ClusterIP))
		return strings.TrimSpace(out), err
	}
	first := ""
	eventually(t, func() (err error) {
		if first, err = ask(); err == nil && first == "" {
			err = errNotYet
		}
		return err
	})
	for _, pod := range pods {
		if pod.Name == first {
			f.delete(t, pod)
		}
	}
	eventually(t, func() error {
		now, err := ask()
		if err == nil && (now == "" || now == first) {
			err = fmt.Errorf("%q answers, %q did before its end", now, first)
		}
		return err
	})
	if got := ovn("--columns=options", "list", "load_balancer", row); !strings.Contains(got, "ct_flush=true") {
		t.Errorf("the options of OVN's load balancer are %q after a change of members, want ct_flush to stay", got)
	}
}
