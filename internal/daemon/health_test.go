// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// If another program has the address, the node lacks its metrics for that time, but not its
// network.
func TestOccupiedAddressStopsNoPod(t *testing.T) {
	t.Parallel()
	var taken [2]net.Listener
	for i := range taken {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		taken[i] = l
	}
	n := newNode(t)
	n.health, n.numbers = taken[0].Addr().String(), taken[1].Addr().String()
	n.start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	for _, l := range taken {
		_ = l.Close()
	}
	for _, url := range []string{"http://" + n.health + "/readyz", "http://" + n.numbers + "/metrics"} {
		n.eventually(url+" is served", func() bool { return fetch(url) != "" })
	}
	if got := fetch("http://" + n.numbers + "/metrics"); !strings.Contains(got, "kuryr_cni_journal_entries 1") {
		t.Errorf("metrics: %s", got)
	}
	n.end()
}

// A client that opens thousands of connections costs the daemon no memory, and does not lock out
// others, such as the kubelet, which would end the daemon.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.health, n.numbers = freeAddress(t), freeAddress(t)
	n.start()
	for address, path := range map[string]string{n.health: "/livez", n.numbers: "/metrics"} {
		n.eventually(address+" is served", func() bool { return fetch("http://"+address+path) != "" })
		for k := range 3 * maxConnections {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if k%2 == 0 { // the others send nothing
				_, _ = conn.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"))
			}
		}
		n.eventually(path+" answers", func() bool { return fetch("http://"+address+path) != "" })
	}
	held := connections{}
	for range 2 * maxConnections {
		conn, _ := net.Pipe()
		held.note(conn, http.StateNew)
	}
	oldest := held.open[0]
	if held.note(oldest, http.StateClosed); len(held.open) != maxConnections-1 || held.open[0] == oldest {
		t.Errorf("%d connections are open, want %d", len(held.open), maxConnections-1)
	}
}

func freeAddress(t *testing.T) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(freePort(t))))
}

// fetch returns what the URL serves, or "".
func fetch(url string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}
