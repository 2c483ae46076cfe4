// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Watch calls changed with the configuration at path and the Hash of the file, now and after each
// change of the file's content. If the file cannot be read or has faults, it calls changed with an
// error (see Load); the caller keeps the older configuration. The calls are sequential, from this
// goroutine. Watch returns when ctx is done.
//
// It follows a file of a mounted ConfigMap, which kubelet replaces by swapping a symbolic link
// beside it. A file mounted by subPath never changes.
func Watch(ctx context.Context, path string, changed func(c *Config, hash string, err error)) {
	w := watch{path: path, changed: changed}
	watcher, err := newWatcher()
	if err != nil { // the node's instances of inotify are used up, say
		logr.FromContextOrDiscard(ctx).Error(err, "the configuration is read twice a minute, as it cannot be watched", "path", path)
	} else {
		defer func() { _ = watcher.Close() }()
		// A folder that is not there (yet) is an error of reading, which w.look
		// reports, and the ticker finds it once it is there.
		_ = watcher.Add(filepath.Dir(path))
	}
	w.look()
	w.run(ctx, watcher)
}

// Hash names the content of a configuration file: "sha256:" and its SHA-256 in hex.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newWatcher makes the watcher for changes of files.
var newWatcher = fsnotify.NewWatcher

type watch struct {
	path    string
	changed func(*Config, string, error)
	hash    string // as last reported
	failure string // as last reported
	begun   bool
}

func (w *watch) run(ctx context.Context, watcher *fsnotify.Watcher) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	var events <-chan fsnotify.Event
	var troubles <-chan error
	if watcher != nil {
		events, troubles = watcher.Events, watcher.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			quiet.Reset(settle)
		case err := <-troubles: // events were lost, maybe
			logr.FromContextOrDiscard(ctx).Info("reading the configuration again, because its watch failed", "trouble", err.Error())
			quiet.Reset(settle)
		case <-quiet.C:
			w.look()
		case <-tick.C:
			if watcher != nil {
				_ = watcher.Add(filepath.Dir(w.path)) // again, if the folder is a new one
			}
			w.look()
		}
	}
}

// look reports the file if it is not as it was at the last report.
func (w *watch) look() {
	data, err := read(w.path)
	if err != nil {
		if err.Error() != w.failure {
			w.hash, w.failure, w.begun = "", err.Error(), true
			w.changed(nil, "", err)
		}
		return
	}
	hash := Hash(data)
	if w.begun && w.failure == "" && hash == w.hash {
		return
	}
	w.hash, w.failure, w.begun = hash, "", true
	c, err := Parse(data)
	if err != nil {
		err = fmt.Errorf("reading configuration %s: %w", w.path, err)
	}
	w.changed(c, hash, err)
}
