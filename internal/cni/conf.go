// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// Slack is how much longer kuryr-cni waits than the daemon, so that the daemon can answer what it
// waited for.
const Slack = 15 * time.Second

// Timeout is how long kuryr-cni waits for the daemon's answer, unless
// configured otherwise: the daemon's own 60 s for an ADD, and the slack.
const Timeout = 60*time.Second + Slack

// Config holds the keys of a network configuration that Kuryr reads. It ignores other keys, such as
// those of other plugins of a chain.
type Config struct {
	CNIVersion string
	Name       string
	DNS        types.DNS     // handed on in the result
	Socket     string        // of the daemon; SocketPath if the key is missing
	Timeout    time.Duration // Timeout if the key is missing

	raw rawConfig
}

type rawConfig struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	DNS        types.DNS       `json:"dns"`
	Socket     string          `json:"socket"`
	Timeout    json.RawMessage `json:"timeout"`
	PrevResult json.RawMessage `json:"prevResult"`
	// What the runtime adds for the capabilities of the configuration.
	RuntimeConfig struct {
		PortMappings json.RawMessage `json:"portMappings"`
	} `json:"runtimeConfig"`
	Valid json.RawMessage `json:"cni.dev/valid-attachments"`
}

// ParseConfig reads a network configuration. The error is always a *types.Error.
func ParseConfig(data []byte) (Config, error) {
	var raw rawConfig
	if err := json.Unmarshal(data, &raw); err != nil {
		return Config{}, types.NewError(CodeDecoding, "reading the network configuration", err.Error())
	}
	c := Config{CNIVersion: raw.CNIVersion, Name: raw.Name, DNS: raw.DNS, Socket: raw.Socket, raw: raw}
	if c.CNIVersion == "" {
		c.CNIVersion = "0.1.0" // as the specification has it
	}
	if c.Socket == "" {
		c.Socket = SocketPath
	}
	// 107 bytes is what a Unix socket's address holds on Linux.
	if !filepath.IsAbs(c.Socket) || len(c.Socket) > 107 {
		return Config{}, types.NewError(CodeInvalidConfig, "socket has to be an absolute path of 107 bytes at most", c.Socket)
	}
	var err error
	c.Timeout, err = parseTimeout(raw.Timeout)
	return c, err
}

// parseTimeout takes "75s" or a number of seconds.
func parseTimeout(raw json.RawMessage) (time.Duration, error) {
	if absent(raw) {
		return Timeout, nil
	}
	var d time.Duration
	var seconds float64
	var text string
	err := json.Unmarshal(raw, &seconds)
	if err == nil && seconds <= 3600 {
		d = time.Duration(seconds * float64(time.Second))
	} else if err = json.Unmarshal(raw, &text); err == nil {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d <= 0 || d > time.Hour {
		return 0, types.NewError(CodeInvalidConfig, "timeout has to be a duration up to 1h, as in \"75s\"", string(raw))
	}
	return d, nil
}

func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// Attachment names one interface of one sandbox.
type Attachment struct{ ContainerID, IfName string }

// ValidAttachments is the list that a GC brings. Without such a list there is
// an error, not an empty one: nothing is taken from a pod because a key is missing.
// Null is an empty one: libcni writes a list of none so.
func (c Config) ValidAttachments() (map[Attachment]bool, error) {
	list := c.raw.Valid
	if len(list) == 0 {
		return nil, types.NewError(CodeInvalidConfig, "GC needs cni.dev/valid-attachments", "")
	}
	var parsed []types.GCAttachment
	if err := json.Unmarshal(list, &parsed); err != nil {
		return nil, types.NewError(CodeDecoding, "reading cni.dev/valid-attachments", err.Error())
	}
	valid := make(map[Attachment]bool, len(parsed))
	for _, a := range parsed {
		valid[Attachment{a.ContainerID, a.IfName}] = true
	}
	return valid, nil
}

// PrevAddresses returns the addresses in the result of the ADD, which a CHECK brings. Before version
// 0.3.0 a result had one of each family. The error is always a *types.Error.
func (c Config) PrevAddresses() ([]netip.Prefix, error) {
	if absent(c.raw.PrevResult) {
		return nil, types.NewError(CodeInvalidConfig, "CHECK needs prevResult", "")
	}
	var prev struct {
		IP4, IP6 struct{ IP netip.Prefix } // before version 0.3.0
		IPs      []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(c.raw.PrevResult, &prev); err != nil {
		return nil, types.NewError(CodeDecoding, "reading prevResult", err.Error())
	}
	all := []netip.Prefix{prev.IP4.IP, prev.IP6.IP}
	for _, ip := range prev.IPs {
		all = append(all, ip.Address)
	}
	return slices.DeleteFunc(all, func(p netip.Prefix) bool { return !p.IsValid() }), nil
}

// WriteFile replaces a file atomically and durably: after a crash it has the old or the new
// content. Until it is complete, its name begins with a dot. Others may write the file at the same
// time.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".tmp-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
