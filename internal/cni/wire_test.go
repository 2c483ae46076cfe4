// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/cni"
)

func sample() *types100.Result {
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	ip4, ip6 := cidr("10.0.0.15/16"), cidr("fd00::15/64")
	return &types100.Result{
		CNIVersion: "1.1.0",
		Interfaces: []*types100.Interface{{Name: "eth0", Mac: "fa:16:3e:00:00:01", Mtu: 1442, Sandbox: "/run/netns/a"}},
		IPs:        []*types100.IPConfig{{Interface: types100.Int(0), Address: ip4, Gateway: net.ParseIP("10.0.0.1")}, {Interface: types100.Int(0), Address: ip6}},
		Routes:     []*types.Route{{Dst: *all, GW: net.ParseIP("10.0.0.1")}},
		DNS:        types.DNS{Nameservers: []string{"10.0.0.2"}},
	}
}

func cidr(s string) net.IPNet {
	ip, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return net.IPNet{IP: ip, Mask: n.Mask}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// serve answers one connection on a socket of its own.
func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			conn.Close()
		}
	}()
	return socket
}

func add() cni.Request {
	return cni.Request{Command: "ADD", ContainerID: "c1", Netns: "/run/netns/a", IfName: "eth0", Args: "A=b", Config: json.RawMessage(`{"name":"n"}`)}
}

func TestCall(t *testing.T) {
	socket := serve(t, func(conn net.Conn) {
		req, err := cni.ReadRequest(conn)
		if diff := cmp.Diff(add(), req); err != nil || diff != "" {
			t.Errorf("ReadRequest() = %v (-want +got)\n%s", err, diff)
		}
		if err := cni.WriteResponse(conn, cni.Response{Result: sample()}); err != nil {
			t.Error(err)
		}
	})
	got, err := cni.Call(t.Context(), socket, add())
	if err != nil || asJSON(t, got.Result) != asJSON(t, sample()) {
		t.Errorf("Call() = %s, %v", asJSON(t, got), err)
	}
}

func TestCallWithoutAnswer(t *testing.T) {
	_, err := cni.Call(t.Context(), filepath.Join(t.TempDir(), "none"), add())
	if !errors.Is(err, cni.ErrNoListener) || !errors.Is(err, cni.ErrNoDaemon) {
		t.Errorf("Call() of nobody = %v", err)
	}
	for what, answer := range map[string]func(net.Conn){
		"nothing": func(c net.Conn) { _, _ = cni.ReadRequest(c) },
		"half":    func(c net.Conn) { _, _ = cni.ReadRequest(c); _, _ = c.Write([]byte(`{"result":`)) },
		"too large": func(c net.Conn) {
			_, _ = cni.ReadRequest(c)
			_, _ = c.Write(bytes.Repeat([]byte(" "), cni.MaxMessage+1))
		},
	} {
		_, err := cni.Call(t.Context(), serve(t, answer), add())
		if !errors.Is(err, cni.ErrNoDaemon) || errors.Is(err, cni.ErrNoListener) {
			t.Errorf("Call() answered with %s = %v", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	release := make(chan struct{})
	defer close(release)
	_, err = cni.Call(ctx, serve(t, func(net.Conn) { <-release }), add())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Call() of somebody who does not answer = %v", err)
	}
}

func TestReadRequestRefuses(t *testing.T) {
	for text, code := range map[string]uint{
		"": cni.CodeDecoding, "{": cni.CodeDecoding, "[]": cni.CodeDecoding, strings.Repeat(" ", cni.MaxMessage+1): cni.CodeDecoding,
		`{}`: cni.CodeInvalidEnvironment, `{"command":"add"}`: cni.CodeInvalidEnvironment,
		`{"command":"ADD","containerID":"../x","ifName":"eth0","netns":"/n"}`: cni.CodeInvalidEnvironment,
		`{"command":"ADD","containerID":"","ifName":"eth0","netns":"/n"}`:     cni.CodeInvalidEnvironment,
		`{"command":"ADD","containerID":"c","ifName":"eth0"}`:                 cni.CodeInvalidEnvironment,
		`{"command":"DEL","containerID":"c","ifName":"a/b"}`:                  cni.CodeInvalidEnvironment,
		`{"command":"DEL","containerID":"c","ifName":"a\u0001b"}`:             cni.CodeInvalidEnvironment,
		`{"command":"DEL","containerID":"c","ifName":"abcdefghijklmnop"}`:     cni.CodeInvalidEnvironment,
		`{"command":"CHECK","containerID":"c","ifName":"eth0"}`:               cni.CodeInvalidEnvironment,
		`{"command":"VERSION"}`: cni.CodeInvalidEnvironment,
	} {
		_, err := cni.ReadRequest(strings.NewReader(text))
		wantCode(t, "ReadRequest("+text[:min(len(text), 80)]+")", err, code)
	}
	for _, text := range []string{`{"command":"DEL","containerID":"c","ifName":"eth0"}`, `{"command":"STATUS"}`, `{"command":"GC"}`} {
		if _, err := cni.ReadRequest(strings.NewReader(text)); err != nil {
			t.Errorf("ReadRequest(%s) = %v", text, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	data, _ := json.Marshal(add())
	f.Add(data)
	f.Add([]byte(`{"command":"DEL","containerID":"c","ifName":"eth0","config":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := cni.ReadRequest(bytes.NewReader(data))
		if err != nil {
			var e *types.Error
			if !errors.As(err, &e) || e.Code == 0 {
				t.Errorf("error without a code: %v", err)
			}
			return
		}
		if name := cni.FileName(r.ContainerID, r.IfName); strings.ContainsAny(name, "/\x00") || len(name) > 255 {
			t.Errorf("FileName(%q, %q) = %q", r.ContainerID, r.IfName, name)
		}
	})
}

func TestPending(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "cni.sock")
	if left, err := cni.Left(socket); len(left) != 0 || err != nil {
		t.Fatalf("Left() of nothing = %v, %v", left, err)
	}
	del := add()
	del.Command = "DEL"
	long := del
	long.ContainerID = strings.Repeat("x", 5000)
	for _, r := range []cni.Request{del, del, long} {
		if err := cni.Leave(socket, r); err != nil {
			t.Fatal(err)
		}
	}
	bad := filepath.Join(filepath.Dir(socket), "deleted", "bad.json")
	if err := os.WriteFile(bad, []byte(`{"command":"ADD","containerID":"c","ifName":"e","netns":"n"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	left, err := cni.Left(socket)
	if len(left) != 2 || err == nil {
		t.Errorf("Left() = %v, %v, want two and an error", left, err)
	}
	if is, err := cni.IsLeft(socket, "c1", "eth0"); !is || err != nil {
		t.Errorf("IsLeft() = %v, %v", is, err)
	}
	for range 2 {
		if err := cni.TakeBack(socket, "c1", "eth0"); err != nil {
			t.Errorf("TakeBack() = %v", err)
		}
	}
	if is, err := cni.IsLeft(socket, "c1", "eth0"); is || err != nil {
		t.Errorf("IsLeft() after TakeBack() = %v, %v", is, err)
	}
}
