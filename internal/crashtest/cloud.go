// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import "github.com/kuryr-go/kuryr/internal/sdn"

// Cloud reads the state of a World's cloud, whatever program made it.
type Cloud interface {
	// Resources returns all resources of the cloud that the controller, or a program like it,
	// could have made.
	Resources() ([]Resource, error)
}

// Resource is one resource of the cloud.
type Resource struct {
	Kind    string // "port"
	ID      string
	Cluster string    // the cluster that its mark names; empty: it has no mark
	Owner   sdn.Owner // the owner that its mark names
	Project string    // the project that it counts for
	Content string    // every field that a call could change
}

type resourceKey struct{ kind, id string }

// look compares the cloud with its last known state, and reports violations. It runs at the end
// of each write, before the caller gets the answer.
func (w *World) look() {
	w.cloudMu.Lock()
	defer w.cloudMu.Unlock()
	now := w.resources()
	for k, r := range now {
		old, known := w.seen[k]
		switch {
		case !known && (r.Cluster != w.life.Cluster || r.Owner == sdn.Owner{}):
			w.fault("%s %s was made without the mark of cluster %q and its owner: %+v", k.kind, k.id, w.life.Cluster, r)
		case !known:
			w.made[k.kind]++
			w.trail.add(nil, "there is "+k.kind+" "+k.id)
			if w.life.Wrong != nil {
				if why := w.life.Wrong(r); why != "" {
					w.fault("%s %s was made although %s", k.kind, k.id, why)
				}
			}
		case old.Cluster != w.life.Cluster && old != r:
			w.fault("%s %s is not ours and was changed from %+v to %+v", k.kind, k.id, old, r)
		}
	}
	for k, old := range w.seen {
		if _, there := now[k]; there {
			continue
		}
		w.trail.add(nil, "gone is "+k.kind+" "+k.id)
		if old.Cluster != w.life.Cluster {
			w.fault("%s %s is not ours and was deleted", k.kind, k.id)
			continue
		}
		if why := w.inUse(old); why != "" {
			w.fault("%s %s was deleted while %s", k.kind, k.id, why)
		}
	}
	w.seen = now
}

// inUse returns why a resource must not be deleted now, empty if it may be.
func (w *World) inUse(r Resource) string {
	if r.Kind == "port" {
		return w.portInUse(r.ID)
	}
	if w.life.InUse != nil {
		return w.life.InUse(r)
	}
	return ""
}

func (w *World) resources() map[resourceKey]Resource {
	list, err := w.life.Cloud.Resources()
	if err != nil {
		w.fault("looking at the cloud: %v", err)
		return w.seen
	}
	out := make(map[resourceKey]Resource, len(list))
	for _, r := range list {
		out[resourceKey{r.Kind, r.ID}] = r
	}
	return out
}

// ByHand runs f, which changes the cloud as another user does.
func (w *World) ByHand(f func()) {
	w.cloudMu.Lock()
	defer w.cloudMu.Unlock()
	f()
	w.seen = w.resources()
}

// Ours returns the IDs of the controller's resources of a kind.
func (w *World) Ours(kind string) map[string]bool {
	w.cloudMu.Lock()
	defer w.cloudMu.Unlock()
	ids := map[string]bool{}
	for k, r := range w.resources() {
		if k.kind == kind && r.Cluster == w.life.Cluster {
			ids[k.id] = true
		}
	}
	return ids
}

// beginCloud is begin for a call to the cloud. It waits while the cloud is silent.
func (w *World) beginCloud(p *process, c Call) (*passage, error) {
	x, err := p.begin(c)
	if err != nil {
		return nil, err
	}
	if c.To == TheCloud {
		select {
		case <-w.answers():
		case <-p.over:
		}
	}
	return x, nil
}

// endCloud is end for a call to the cloud.
func (w *World) endCloud(x *passage) error {
	if x.call.Write {
		w.look()
	}
	return x.end()
}
