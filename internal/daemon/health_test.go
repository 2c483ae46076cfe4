// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// An address that somebody else has costs the node its metrics, for as long as
// that lasts, and not its network.
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

// fetch returns what is served, or nothing.
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
