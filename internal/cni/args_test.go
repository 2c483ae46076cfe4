// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/cni"
)

const port = "PORT_UUID=a28c7404-7495-4557-b7fc-3e293508dbc6"

func TestParseArgs(t *testing.T) {
	containerd := "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=nginx-app-722l8;" +
		"K8S_POD_INFRA_CONTAINER_ID=8ceb00926acf251b34d70065a6158370953ab909b0745f5f4647ee6b9ec5c250;" +
		"K8S_POD_UID=8cca008f-d492-11e5-bf9e-42010af00005"
	got, err := cni.ParseArgs(containerd)
	want := cni.Args{Namespace: "default", Name: "nginx-app-722l8", UID: "8cca008f-d492-11e5-bf9e-42010af00005"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseArgs(%q): %v (-want +got)\n%s", containerd, err, diff)
	}
}

// The MidoNet document writes semicolons in its first list and commas in its second.
func TestParseArgsWithPort(t *testing.T) {
	for _, separator := range []string{";", ",", ", ", ",\n    ", ";\\\n", ",\\\n    "} {
		args := "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;" + strings.Join([]string{port, "IPV4=10.0.0.15/16", "GW=10.0.0.1",
			"PORT_TYPE=midonet", "MAC=FA:16:3E:00:00:01", "MTU=1450", "IPV6=fd00::15/64", "GW6=fd00::1"}, separator) + ";OTHER=a,b"
		got, err := cni.ParseArgs(args)
		if err != nil {
			t.Fatalf("ParseArgs(%q) = %v", args, err)
		}
		p := got.Port
		if got.Pod() != "default/web" || p == nil || p.ID != "a28c7404-7495-4557-b7fc-3e293508dbc6" || p.Type != "midonet" ||
			p.MAC.String() != "fa:16:3e:00:00:01" || p.MTU != 1450 || len(p.Addresses) != 2 ||
			p.Addresses[0].Prefix.String() != "10.0.0.15/16" || p.Addresses[0].Gateway.String() != "10.0.0.1" ||
			p.Addresses[1].Prefix.String() != "fd00::15/64" || p.Addresses[1].Gateway.String() != "fd00::1" {
			t.Errorf("ParseArgs(%q) = %+v, port %+v", args, got, p)
		}
	}
}

func TestParseArgsRefuses(t *testing.T) {
	rest := ";IPV4=10.0.0.15/16;PORT_TYPE=midonet"
	for _, args := range []string{
		"", "K8S_POD_NAME=web", "K8S_POD_NAMESPACE=default", "K8S_POD_NAMESPACE=;K8S_POD_NAME=",
		"K8S_POD_NAMESPACE=a;K8S_POD_NAMESPACE=b;K8S_POD_NAME=web",
		"PORT_UUID=../../etc/passwd" + rest, "PORT_UUID=1" + rest,
		port, port + ";IPV4=10.0.0.15/16", port + ";PORT_TYPE=midonet",
		port + ";PORT_TYPE=../evil;IPV4=10.0.0.15/16", port + ";PORT_TYPE=Up;IPV4=10.0.0.15/16",
		port + ";PORT_TYPE=midonet;IPV4=10.0.0.15", port + ";PORT_TYPE=midonet;IPV4=10.0.0.15/33", port + ";PORT_TYPE=midonet;IPV4=fd00::1/64",
		port + ";PORT_TYPE=midonet;IPV6=10.0.0.1/8", port + ";PORT_TYPE=midonet;IPV6=::ffff:10.0.0.1/128",
		port + rest + ";GW=fd00::1", port + rest + ";GW=x", port + rest + ";MAC=1", port + rest + ";MAC=00:00:00:00:fe:80:00:00",
		port + rest + ";MTU=67", port + rest + ";MTU=65536", port + rest + ";MTU=big",
	} {
		_, err := cni.ParseArgs(args)
		wantCode(t, "ParseArgs("+args+")", err, cni.CodeInvalidEnvironment)
	}
}

func wantCode(t *testing.T, what string, err error, code uint) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != code || e.Msg == "" {
		t.Errorf("%s = %v, want a CNI error of code %d", what, err, code)
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web")
	f.Add(port + ",IPV4=10.0.0.15/16,GW=10.0.0.1,PORT_TYPE=midonet,MAC=fa:16:3e:00:00:01,MTU=1450,IPV6=fd00::1/64,GW6=fd00::2")
	f.Add(port + ";;=;IPV4=;,GW=")
	f.Fuzz(func(t *testing.T, args string) {
		a, err := cni.ParseArgs(args)
		if err != nil {
			wantCode(t, args, err, cni.CodeInvalidEnvironment)
			return
		}
		if a.Port == nil && (a.Name == "" || a.Namespace == "") {
			t.Errorf("ParseArgs(%q) = %+v: neither pod nor port", args, a)
		}
		if p := a.Port; p != nil && (len(p.ID) != 36 || len(p.Addresses) == 0 || strings.ContainsAny(p.Type, "/.")) {
			t.Errorf("ParseArgs(%q) = %+v: nothing to plug", args, p)
		}
	})
}
