// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// terms knows which of several processes wrote each version of a KuryrPort.
type terms struct {
	mu sync.Mutex
	by map[uint64]*process
}

// note records a write of p with its answer, which may still be read afterwards.
func (t *terms) note(p *process, r *http.Request, answer *http.Response) error {
	marker := r.URL.Query().Get("fieldManager") == "kuryr-shard" // the next owner writes it before its term
	if t == nil || marker || answer.StatusCode >= 300 || !strings.Contains(r.URL.Path, "/kuryrports") || r.Method == http.MethodDelete {
		return nil
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return err
	}
	var port v1.KuryrPort
	if err := json.Unmarshal(body, &port); err != nil {
		return fmt.Errorf("the answer to a write of a KuryrPort: %w", err)
	}
	version, err := strconv.ParseUint(port.ResourceVersion, 10, 64)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[version] = p
	return err
}

// check returns the KuryrPorts that a process wrote after another one had written them in its place, while that one
// was neither stopped nor paused. The writers' terms never fall.
func (t *terms) check(h *history) (faults []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.events, func(a, b event) int { return cmp.Compare(a.version, b.version) })
	last, before := map[types.UID]*process{}, map[types.UID][]*process{}
	for _, e := range h.events {
		uid, by := e.object.GetUID(), t.by[e.version]
		if _, is := e.object.(*v1.KuryrPort); !is || by == nil {
			continue
		}
		if now := last[uid]; now != nil && now != by && slices.Contains(before[uid], by) && !now.isStopped() && !now.hasPaused() {
			faults = append(faults, fmt.Sprintf("process %d wrote KuryrPort %s at version %d, which process %d had already written in its place", by.number, e.object.GetName(), e.version, now.number))
		}
		last[uid] = by
		before[uid] = append(before[uid], by)
	}
	return faults
}
