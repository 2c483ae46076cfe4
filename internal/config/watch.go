// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// lookEvery is the time between two reads of the file. The kubelet takes up to a minute and a half to
// write a changed ConfigMap, so there is nothing to gain by watching the file.
const lookEvery = time.Second

// Watch calls changed with the configuration at path and the Hash of the file, now and after each
// change of the file's content. If the file cannot be read or has faults, it calls changed with an
// error (see Load); the caller keeps the older configuration. The calls are sequential, from this
// goroutine. Watch returns when ctx is done.
//
// It follows a file of a mounted ConfigMap, which kubelet replaces by swapping a symbolic link
// beside it. A file mounted by subPath never changes.
func Watch(ctx context.Context, path string, changed func(c *Config, hash string, err error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var reported, before string
	for {
		data, err := read(path)
		now := Hash(data)
		if err != nil {
			now = err.Error()
		}
		// A change counts if two reads show it: an editor takes several steps to replace a file.
		if now != reported && (reported == "" || now == before) {
			reported = now
			report(path, data, err, changed)
		}
		before = now
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// report calls changed with what was read.
func report(path string, data []byte, err error, changed func(*Config, string, error)) {
	if err != nil {
		changed(nil, "", err)
		return
	}
	c, err := Parse(data)
	if err != nil {
		err = fmt.Errorf("reading configuration %s: %w", path, err)
	}
	changed(c, Hash(data), err)
}

// Hash names the content of a configuration file: "sha256:" and its SHA-256 in hex.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
