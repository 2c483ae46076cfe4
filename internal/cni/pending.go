// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A DEL while the daemon is away is left as a file beside the socket. The daemon executes it when
// it is back. So a pod can be deleted while the daemon is being replaced, and its devices on the
// node are not forgotten.
//
// No DEL is lost between the two: kuryr-cni first writes the file, then tries the daemon once more;
// the daemon first listens, then reads the files, then answers. No DEL hits a later attachment of
// the same name: an ADD removes the file.
const pendingDir = "deleted"

// Leave leaves a DEL for the daemon of socket. It may be called again.
func Leave(socket string, r Request) error {
	path := pendingPath(socket, r.ContainerID, r.IfName)
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("recording the DEL: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("recording the DEL: %w", err)
	}
	if err := WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("recording the DEL: %w", err)
	}
	return nil
}

// Left returns the DELs that were left for the daemon of socket. Files that
// are none come back in the error, beside the others.
func Left(socket string) ([]Request, error) {
	dir := filepath.Join(filepath.Dir(socket), pendingDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pending DELs: %w", err)
	}
	var left []Request
	var bad []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // it is still being written
			continue
		}
		r, err := readLeft(filepath.Join(dir, e.Name()))
		if err != nil {
			bad = append(bad, fmt.Errorf("reading the pending DEL in %s: %w", e.Name(), err))
			continue
		}
		left = append(left, r)
	}
	return left, errors.Join(bad...)
}

func readLeft(path string) (Request, error) {
	f, err := os.Open(path)
	if err != nil {
		return Request{}, err
	}
	defer f.Close()
	r, err := ReadRequest(f)
	if err == nil && r.Command != "DEL" {
		err = fmt.Errorf("its command is %s", r.Command)
	}
	return r, err
}

// IsLeft says whether a DEL is left for the attachment.
func IsLeft(socket, containerID, ifName string) (bool, error) {
	_, err := os.Stat(pendingPath(socket, containerID, ifName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// TakeBack removes the file that Leave has written. It succeeds if there is none.
func TakeBack(socket, containerID, ifName string) error {
	err := os.Remove(pendingPath(socket, containerID, ifName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func pendingPath(socket, containerID, ifName string) string {
	return filepath.Join(filepath.Dir(socket), pendingDir, FileName(containerID, ifName))
}

// FileName is a name for a file about one attachment: readable, and short
// enough for any file system even if the container's ID is not.
func FileName(containerID, ifName string) string {
	name := containerID + "@" + ifName // no container ID has an @
	if len(name) > 200 {
		sum := sha256.Sum256([]byte(name))
		name = "@" + hex.EncodeToString(sum[:])
	}
	return name + ".json"
}
