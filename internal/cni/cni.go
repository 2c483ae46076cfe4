// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package cni is the protocol between kuryr-cni and the daemon: one request and one answer in JSON
// over a Unix socket, and the error codes. It links only the standard library and CNI's own types,
// because kuryr-cni starts for every pod and must start fast.
//
// The exchange: the client connects, writes one Request (a JSON value), and reads one Response up
// to the end. It does not close its writing side before: a connection that ends early tells the
// daemon that the client no longer waits, and a half-closed connection looks the same.
package cni

import (
	"encoding/json"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// SocketPath is where the daemon serves, unless configured otherwise.
const SocketPath = "/run/kuryr/cni.sock"

// Request is one CNI call, as the container runtime made it.
type Request struct {
	Command     string          `json:"command"` // ADD, DEL, CHECK, GC, STATUS
	ContainerID string          `json:"containerID,omitempty"`
	Netns       string          `json:"netns,omitempty"` // empty in a DEL: nothing to do in the pod
	IfName      string          `json:"ifName,omitempty"`
	Args        string          `json:"args,omitempty"` // CNI_ARGS
	Config      json.RawMessage `json:"config"`         // network configuration, from stdin
}

// Response is the answer: a result (ADD only), or an error, or neither.
type Response struct {
	Result *types100.Result `json:"result,omitempty"`
	Error  *types.Error     `json:"error,omitempty"`
}

// Error codes. 1 to 99 are the CNI specification's (§ Error); from 100 on they are Kuryr's own.
// docs/cni.md has a remedy for each.
const (
	CodeIncompatibleVersion = types.ErrIncompatibleCNIVersion      // 1
	CodeUnsupportedField    = types.ErrUnsupportedField            // 2
	CodeUnknownContainer    = types.ErrUnknownContainer            // 3
	CodeInvalidEnvironment  = types.ErrInvalidEnvironmentVariables // 4
	CodeIO                  = types.ErrIOFailure                   // 5
	CodeDecoding            = types.ErrDecodingFailure             // 6
	CodeInvalidConfig       = types.ErrInvalidNetworkConfig        // 7
	CodeInvalidNetns        = types.ErrInvalidNetNS                // 8
	CodeTryAgain            = types.ErrTryAgainLater               // 11
	CodePluginNotAvailable  = types.ErrPluginNotAvailable          // 50

	CodeNoDaemon     uint = 100 // the daemon does not answer on its socket
	CodeNoPort       uint = 101 // no port was bound to the pod in time
	CodeNotWired     uint = 102 // the data path did not wire the port in time
	CodeDataPath     uint = 103 // the local switch is away or refuses the port
	CodeDriver       uint = 104 // a binding driver failed
	CodeUnknownType  uint = 105 // no binding driver for this type of port
	CodePodGone      uint = 106 // the pod was deleted meanwhile
	CodeNotAsPlugged uint = 107 // CHECK found a difference
	CodeHostPort     uint = 108 // the node cannot pass on the pod's host ports
	CodeInternal     uint = 199 // a fault in Kuryr itself
)
