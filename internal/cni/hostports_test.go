// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kuryr-go/kuryr/internal/cni"
)

func TestHostPorts(t *testing.T) {
	parse := func(t *testing.T, text string) ([]cni.HostPort, error) {
		c, err := cni.ParseConfig(fmt.Appendf(nil, `{"runtimeConfig":{"x":1,"portMappings":%s}}`, text))
		if err != nil {
			t.Fatal(err)
		}
		return c.HostPorts()
	}
	for text, want := range map[string][]cni.HostPort{
		`null`: nil, `[]`: nil, `[{"hostPort":0,"containerPort":80}]`: nil,
		`[{"hostPort":8080,"containerPort":80}]`: {{Protocol: "TCP", Port: 8080, Target: 80}},
		`[{"hostPort":1,"containerPort":2,"protocol":"udp","hostIP":"::ffff:192.0.2.1"},{"hostPort":65535,"containerPort":65535,"protocol":"SCTP","hostIP":"fe80::1%eth0"}]`: {
			{Address: netip.MustParseAddr("192.0.2.1"), Protocol: "UDP", Port: 1, Target: 2},
			{Address: netip.MustParseAddr("fe80::1"), Protocol: "SCTP", Port: 65535, Target: 65535},
		},
	} {
		got, err := parse(t, text)
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
			t.Errorf("HostPorts() of %s: %v (-want +got)\n%s", text, err, d)
		}
	}
	for text, code := range map[string]uint{
		`{}`: cni.CodeDecoding, `[{"hostPort":"1"}]`: cni.CodeDecoding,
		`[{"hostPort":1}]`: cni.CodeInvalidConfig, `[{"hostPort":65536,"containerPort":1}]`: cni.CodeInvalidConfig,
		`[{"hostPort":-1,"containerPort":1}]`:                                         cni.CodeInvalidConfig,
		`[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]`:                        cni.CodeInvalidConfig,
		`[{"hostPort":1,"containerPort":1,"hostIP":"here"}]`:                          cni.CodeInvalidConfig,
		`[{"hostPort":1,"containerPort":1},{"hostPort":1,"containerPort":70000}]`:     cni.CodeInvalidConfig,
		`[{"hostPort":1,"containerPort":1,"protocol":"tcp","hostIP":"192.0.2.1/24"}]`: cni.CodeInvalidConfig,
	} {
		_, err := parse(t, text)
		wantCode(t, "HostPorts() of "+text, err, code)
	}
	c, err := cni.ParseConfig([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.HostPorts(); err != nil || got != nil {
		t.Errorf("HostPorts() of a configuration without: %v, %v", got, err)
	}
}
