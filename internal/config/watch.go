// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

const (
	// settle is how long the folder has to be quiet before the file is read:
	// an editor or kubelet takes several steps to replace it.
	settle = 200 * time.Millisecond
	// lookAgain is how often the file is read although nothing was heard: a
	// folder that is replaced as a whole takes its watch along.
	lookAgain = 30 * time.Second
)

// Watch calls changed with the configuration at path as it is now and after
// each change of the file's content, or with an error (see Load) if it cannot
// be read or has faults: who has an older one keeps it. The calls come one
// after the other, from this goroutine. Watch returns once ctx is done.
//
// It follows a file of a mounted ConfigMap, which kubelet replaces by swapping
// a symbolic link beside it; one mounted by subPath never changes.
func Watch(ctx context.Context, path string, changed func(*Config, error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching configuration %s: %w", path, err)
	}
	defer watcher.Close()
	w := watch{path: path, changed: changed}
	// A folder that is not there (yet) is an error of reading, which w.look
	// reports, and the ticker finds it once it is there.
	_ = watcher.Add(filepath.Dir(path))
	w.look()
	w.run(ctx, watcher)
	return nil
}

type watch struct {
	path    string
	changed func(*Config, error)
	data    []byte // as last reported
	failure string // as last reported
	begun   bool
}

func (w *watch) run(ctx context.Context, watcher *fsnotify.Watcher) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watcher.Events:
			quiet.Reset(settle)
		case err := <-watcher.Errors: // events were lost, maybe
			logr.FromContextOrDiscard(ctx).Info("reading the configuration again, as its watch is in trouble", "trouble", err.Error())
			quiet.Reset(settle)
		case <-quiet.C:
			w.look()
		case <-tick.C:
			_ = watcher.Add(filepath.Dir(w.path)) // again, if the folder is a new one
			w.look()
		}
	}
}

// look reports the file if it is not as it was at the last report.
func (w *watch) look() {
	data, err := read(w.path)
	if err != nil {
		if err.Error() != w.failure {
			w.data, w.failure, w.begun = nil, err.Error(), true
			w.changed(nil, err)
		}
		return
	}
	if w.begun && w.failure == "" && bytes.Equal(data, w.data) {
		return
	}
	w.data, w.failure, w.begun = data, "", true
	c, err := Parse(data)
	if err != nil {
		err = fmt.Errorf("reading configuration %s: %w", w.path, err)
	}
	w.changed(c, err)
}
