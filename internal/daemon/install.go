// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// Install describes the CNI files that the daemon writes on the node.
type Install struct {
	Plugin  string // the kuryr-cni executable to copy
	BinDir  string // where runtimes look for plugins; empty: do not copy
	ConfDir string // where runtimes look for networks; empty: write no file
	Version string // CNI version in that file; empty: ConfVersion
}

// ConfVersion is the newest version of CNI that containerd 1.6 accepts. With 1.1.0 the runtime
// also sends GC and STATUS.
const ConfVersion = "1.0.0"

// ConfFile is the network configuration's name in Install.ConfDir. The kubelet and containerd use
// the first file in alphabetical order.
const ConfFile = "10-kuryr.conflist"

// installOnceReady installs the plugin and the configuration on the node as soon as the daemon
// can serve a call. It writes the configuration last, because the runtime then reports that the
// node has a network. Both stay when the daemon ends, so that pods can be deleted while it is
// replaced.
func (d *Daemon) installOnceReady(ctx context.Context) error {
	if d.Install.BinDir == "" && d.Install.ConfDir == "" {
		return nil
	}
	// The daemon does not end if the disk is full or read-only. It serves calls with the files of
	// an earlier daemon, so pods can still be deleted.
	install := func() error {
		if err := d.ports.until(ctx, d.ports.synced); err != nil {
			return err
		}
		if err := d.ready(ctx); err != nil {
			return err
		}
		return d.Install.run(d.Socket, d.Settings.AddTimeout.Duration)
	}
	if untilDone(ctx, installRetry, "installing CNI on the node", install) {
		logr.FromContextOrDiscard(ctx).Info("CNI is installed on the node", "bin", d.Install.BinDir, "conf", d.Install.ConfDir)
	}
	return nil
}

func (i Install) run(socket string, addTimeout time.Duration) error {
	if i.BinDir != "" {
		data, err := os.ReadFile(i.Plugin)
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(i.BinDir, "kuryr-cni"), data, 0o755); err != nil {
			return err
		}
	}
	if i.ConfDir == "" {
		return nil
	}
	return replace(filepath.Join(i.ConfDir, ConfFile), conflist(socket, cmp.Or(i.Version, ConfVersion), addTimeout), 0o644)
}

// conflist returns the network configuration. Version 1.0.0 is the newest that containerd 1.6
// accepts; kuryr-cni also speaks 1.1.0, for GC and STATUS.
func conflist(socket, version string, addTimeout time.Duration) []byte {
	data, err := json.MarshalIndent(map[string]any{
		"cniVersion": version,
		"name":       "kuryr",
		"plugins": []any{map[string]any{
			"type":    "kuryr-cni",
			"socket":  socket,
			"timeout": (addTimeout + cni.Slack).String(),
			// The runtime then sends host ports.
			"capabilities": map[string]bool{"portMappings": true},
		}},
	}, "", "  ")
	if err != nil {
		panic(err) // cannot happen: only strings
	}
	return append(data, '\n')
}

// replace writes a file unless it has this content already. A running plugin keeps its old file.
func replace(path string, data []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return os.Chmod(path, mode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return cni.WriteFile(path, data, mode)
}
