// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// TestCloseEndsCallsThatWait has calls hang, sleep and wait for a worker, each
// for longer than the test may last.
func TestCloseEndsCallsThatWait(t *testing.T) {
	for name, lines := range map[string][]string{
		"a fault hangs": {"network GET /v2.0/networks: hang"},
		"a latency":     {"network GET /v2.0/networks: {latency: 1h}"},
		"no worker":     {"network GET /v2.0/networks: {latency: 1h}", "workers: {network: 1}"},
	} {
		t.Run(name, func(t *testing.T) {
			c, k := dialled(t, lines...)
			answers := make(chan answer, 2)
			for range 2 {
				go func() { answers <- k.send(http.MethodGet, "/networking/v2.0/networks", "") }()
			}
			if name == "a fault hangs" {
				for c.Count(http.MethodGet, "networks", "hang") < 2 {
					time.Sleep(time.Millisecond)
				}
			}
			c.Close()
			for range 2 {
				if a := <-answers; a.err == nil {
					t.Errorf("got %d %s, want no answer", a.status, a.body)
				}
			}
			c.Close() // once more does no harm
		})
	}
}

func TestATooLargeBodyIsLogged(t *testing.T) {
	c, err := openstacksim.New(openstacksim.Options{URL: "http://cloud.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/networking/v2.0/ports", io.LimitReader(zeros{}, 64<<20+1))
	c.ServeHTTP(w, r)
	if n := c.Count(http.MethodPost, "ports", "413"); w.Code != http.StatusRequestEntityTooLarge || n != 1 {
		t.Errorf("answered %d, and the log has it %d times, want 413 and 1", w.Code, n)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
