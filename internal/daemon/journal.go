// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// journal records what is plugged on this node: a file for each attachment, written before anything
// is plugged and removed after it is unplugged. Its methods are safe for concurrent use. A caller
// that changes an attachment holds the lock of its port.
type journal struct {
	dir              string
	hostPortsChanged func() // called after they change

	mu      sync.Mutex
	entries map[string]entry // by key, which is also the file's name
}

// openJournal reads the journal in dir, which it creates if needed. It sets unusable files aside
// and logs them. One bad file makes one attachment unknown, but does not leave the node without a
// network.
func openJournal(dir string, log logr.Logger) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	j := &journal{dir: dir, hostPortsChanged: func() {}, entries: map[string]entry{}}
	for _, f := range files {
		name := f.Name()
		path := filepath.Join(dir, name)
		switch {
		case strings.HasPrefix(name, "."): // an interrupted write
			err = os.Remove(path)
		case strings.HasSuffix(name, ".json"):
			err = j.load(path, name, log)
		}
		if err != nil {
			return nil, fmt.Errorf("opening the journal: %w", err)
		}
	}
	return j, nil
}

func (j *journal) load(path, name string, log logr.Logger) error {
	e, err := readEntry(path)
	if err == nil && e.key() != name {
		err = errors.New("its content belongs to another attachment than its name")
	}
	if err != nil {
		log.Error(err, "setting aside a journal file that cannot be used", "file", path)
		return os.Rename(path, path+".bad")
	}
	j.entries[name] = e
	return nil
}

func readEntry(path string) (entry, error) {
	var e entry
	data, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, err
	}
	return e, e.check()
}

func (j *journal) get(key string) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[key]
	return e, ok
}

// put stores e. It is on the disk when put returns.
func (j *journal) put(e entry) error {
	data, err := json.Marshal(e)
	if err == nil {
		err = cni.WriteFile(filepath.Join(j.dir, e.key()), data, 0o600)
	}
	if err != nil {
		return types.NewError(cni.CodeIO, "the journal cannot be written", err.Error())
	}
	j.mu.Lock()
	had := j.entries[e.key()]
	j.entries[e.key()] = e
	j.mu.Unlock()
	if len(e.HostPorts)+len(had.HostPorts) > 0 {
		j.hostPortsChanged()
	}
	return nil
}

// remove forgets e. It does not force that to the disk: if the file returns, another unplugging
// does no harm.
func (j *journal) remove(e entry) error {
	if err := os.Remove(filepath.Join(j.dir, e.key())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return types.NewError(cni.CodeIO, "the journal cannot be written", err.Error())
	}
	j.mu.Lock()
	had := j.entries[e.key()]
	delete(j.entries, e.key())
	j.mu.Unlock()
	if len(had.HostPorts) > 0 {
		j.hostPortsChanged()
	}
	return nil
}

// all returns every entry, ordered by key.
func (j *journal) all() []entry { return j.where(func(entry) bool { return true }) }

// ofPort returns the entries of a port, the newest first. There are several only while a port moves
// to another sandbox.
func (j *journal) ofPort(id string) []entry {
	found := j.where(func(e entry) bool { return e.Port.ID == id })
	slices.SortStableFunc(found, func(a, b entry) int { return b.Since.Compare(a.Since) })
	return found
}

func (j *journal) where(match func(entry) bool) []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []entry
	for _, e := range j.entries {
		if match(e) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b entry) int { return strings.Compare(a.key(), b.key()) })
	return found
}
