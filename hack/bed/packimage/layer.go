// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// writeLayer writes everything below root to w, in the order of the names.
// Devices, sockets and pipes are not for images and make it fail.
func writeLayer(w io.Writer, root string) error {
	layer := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return addEntry(layer, root, path, entry)
	})
	if err != nil {
		return err
	}
	return layer.Close()
}

// addEntry adds the file, folder or symbolic link at path under its name below root.
func addEntry(layer *tar.Writer, root, path string, entry fs.DirEntry) error {
	header, err := headerOf(root, path, entry)
	if err != nil {
		return err
	}
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(layer, f)
	return err
}

// headerOf leaves out whatever would make the same folder pack differently:
// who owns it here and when it was written.
func headerOf(root, path string, entry fs.DirEntry) (*tar.Header, error) {
	info, err := entry.Info()
	if err != nil {
		return nil, err
	}
	var target string
	switch info.Mode().Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		if target, err = os.Readlink(path); err != nil {
			return nil, err
		}
	default:
		return nil, &fs.PathError{Op: "pack", Path: path, Err: fs.ErrInvalid}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return nil, err
	}
	if header.Name, err = filepath.Rel(root, path); err != nil {
		return nil, err
	}
	if info.IsDir() {
		header.Name += "/"
	}
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	header.ModTime, header.AccessTime, header.ChangeTime = time.Unix(0, 0), time.Time{}, time.Time{}
	return header, nil
}

func addBytes(archive *tar.Writer, name string, data []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := archive.Write(data)
	return err
}

func addFile(archive *tar.Writer, name string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return err
}
