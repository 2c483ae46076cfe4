// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// The bugs of the former implementation, by the numbers of its bug tracker. docs/pools.md lists
// them all.

// requestOf is request for a pod of the same name and another UID.
func requestOf(uid, command, container, netns string) cni.Request {
	r := request(command, container, netns)
	r.Args = strings.ReplaceAll(r.Args, uidA, uid)
	return r
}

// Bug 1854928: a daemon that had missed the end of a pod gave its address to the next pod of the
// same name. Here the API is unavailable when the first pod ends and the second gets its port. No
// DEL comes for the first.
func TestBug1854928(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.rests(portA, "c1")
	n.api.setDown(true)
	answer := make(chan string, 1)
	go func() {
		result, err := n.call(t.Context(), requestOf(uidB, "ADD", "c2", "/run/netns/b"))
		answer <- addressOf(result, err)
	}()
	next := kuryrPort(portB, uidB)
	next.Spec.VIF.Addresses = next.Spec.VIF.Addresses[:1]
	next.Spec.VIF.Addresses[0].IP = "10.0.0.6"
	n.api.put(next)
	n.api.setDown(false)
	if got := <-answer; got != "10.0.0.6/24" {
		t.Errorf("the second pod of the name has %s, want 10.0.0.6/24, its own", got)
	}
	n.rests(portB, "c2")
	n.rests(portA, "c1") // until its DEL comes; no other pod may have the port before
	n.do(request("DEL", "c1", ""))
	n.rests(portA, "")
	n.rests(portB, "c2")
}

func addressOf(result *types100.Result, err error) string {
	if err != nil || len(result.IPs) == 0 {
		return fmt.Sprintf("no address: %v", err)
	}
	return result.IPs[0].Address.String()
}

// Bug 1963678: an ADD waited for its full time for a pod that had been deleted meanwhile. An ADD
// without a port must end when the runtime no longer needs it. A port that comes too late is not
// plugged.
func TestBug1963678(t *testing.T) {
	for name, end := range map[string]func(n *node, hangUp func()){
		"the runtime hangs up":  func(_ *node, hangUp func()) { hangUp() },
		"the runtime says DEL":  func(n *node, _ func()) { n.do(request("DEL", "c1", "/run/netns/a")) },
		"DEL of a dead sandbox": func(n *node, _ func()) { n.do(request("DEL", "c1", "")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t).start()
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			done := make(chan error, 1)
			go func() { _, err := n.call(ctx, request("ADD", "c1", "/run/netns/a")); done <- err }()
			n.eventually("the ADD waits for a port", func() bool {
				release, free := n.daemon.sandboxes.Try(attachmentKey("c1", "eth0"))
				if free {
					release()
				}
				return !free
			})
			end(n, hangUp)
			if err := <-done; err == nil || codeOf(err) == cni.CodeNoPort {
				t.Errorf("ADD = %v: it has waited for its full time", err)
			}
			n.eventually("nobody holds the sandbox", func() bool {
				release, free := n.daemon.sandboxes.Try(attachmentKey("c1", "eth0"))
				if free {
					release()
				}
				return free
			})
			n.api.put(kuryrPort(portA, uidA))
			n.eventually("the daemon has seen the port", func() bool { return n.daemon.ports.port(portA) != nil })
			n.rests(portA, "")
			if n.count("plug") != 0 {
				t.Error("a port was plugged for a pod that is gone")
			}
		})
	}
}

// Bug 1882083: a runtime repeats the DELs of deleted sandboxes forever, and they kept the daemon
// from its work. They must cause no call of the driver and none of the API, and must not delay an
// ADD.
func TestBug1882083(t *testing.T) {
	n := newNode(t).start()
	done := make(chan error, 1)
	go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
	var stale sync.WaitGroup
	for i := range 200 {
		stale.Go(func() {
			req := request("DEL", fmt.Sprint("dead-", i), fmt.Sprint("/run/netns/dead-", i))
			if _, err := n.call(t.Context(), req); err != nil {
				t.Errorf("DEL of a sandbox long gone: %v", err)
			}
		})
	}
	stale.Wait() // while the ADD waits for its port
	n.api.put(kuryrPort(portA, uidA))
	if err := <-done; err != nil {
		t.Fatalf("ADD beside stale DELs: %v", err)
	}
	n.rests(portA, "c1")
	for range 20 {
		n.do(request("DEL", "dead-1", ""))
	}
	n.rests(portA, "c1")
	if unplugged, reports := n.count("unplug"), n.api.reports; unplugged != 0 || reports != 1 {
		t.Errorf("stale DELs cost %d calls of the driver and %d writes to the API", unplugged, reports-1)
	}
}
