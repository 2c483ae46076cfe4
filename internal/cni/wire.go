// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
)

// MaxMessage bounds a request and an answer, in bytes. The largest real one is
// a GC's list of all attachments of a node, some 100 bytes each.
const MaxMessage = 1 << 20

// ErrNoDaemon: no daemon serves the socket, or it ended before the answer. An interrupted request
// may have taken effect, unless the error is ErrNoListener as well.
var ErrNoDaemon = errors.New("the Kuryr daemon does not answer")

// ErrNoListener: nobody serves the socket; the request was not sent.
var ErrNoListener = fmt.Errorf("%w: no process listens", ErrNoDaemon)

// errTooLarge: a message is above MaxMessage.
var errTooLarge = fmt.Errorf("message is larger than %d bytes", MaxMessage)

// ReadRequest reads one request and checks what identifies the sandbox. The
// error is always a *types.Error, fit for the answer.
func ReadRequest(r io.Reader) (Request, error) {
	var req Request
	if err := decode(r, &req); err != nil {
		return Request{}, types.NewError(CodeDecoding, "reading the request of kuryr-cni", err.Error())
	}
	return req, req.check()
}

// check returns what is wrong with a request, as a *types.Error. A valid request is safe in a file
// name, except for its length.
func (r Request) check() error {
	switch r.Command {
	case "GC", "STATUS":
		return nil
	case "ADD", "CHECK", "DEL":
	default:
		return types.NewError(CodeInvalidEnvironment, fmt.Sprintf("unknown CNI_COMMAND: %q", r.Command), "")
	}
	if err := utils.ValidateContainerID(r.ContainerID); err != nil {
		return types.NewError(CodeInvalidEnvironment, "CNI_CONTAINERID: "+err.Msg, err.Details)
	}
	if err := utils.ValidateInterfaceName(r.IfName); err != nil {
		return types.NewError(CodeInvalidEnvironment, "CNI_IFNAME: "+err.Msg, err.Details)
	}
	if !printable(r.IfName) {
		return types.NewError(CodeInvalidEnvironment, "CNI_IFNAME: interface name contains unprintable characters", "")
	}
	if r.Command != "DEL" && r.Netns == "" {
		return types.NewError(CodeInvalidEnvironment, "CNI_NETNS is missing", "")
	}
	return nil
}

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// WriteResponse writes one answer.
func WriteResponse(w io.Writer, r Response) error {
	return json.NewEncoder(w).Encode(r)
}

// Call sends the daemon on socket a request and returns its answer. It ends with ctx; the daemon
// then stops its work for the request.
func Call(ctx context.Context, socket string, req Request) (Response, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return Response{}, fmt.Errorf("%w: %w", ErrNoListener, err)
	}
	defer conn.Close()
	// A deadline in the past interrupts a pending read or write.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()

	var answer Response
	if err = json.NewEncoder(conn).Encode(req); err == nil {
		err = decode(conn, &answer)
	}
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return Response{}, fmt.Errorf("waiting for the Kuryr daemon's answer: %w", ctx.Err())
	default:
		return Response{}, fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}
}

// decode reads one JSON value of bounded size.
func decode(r io.Reader, into any) error {
	limited := &io.LimitedReader{R: r, N: MaxMessage}
	err := json.NewDecoder(limited).Decode(into)
	if err != nil && limited.N <= 0 {
		return errTooLarge
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Convert returns a result as the given version of the specification has it;
// versions before 0.3.0 have room for one address of each family. It may
// change result. The error is always a *types.Error.
func Convert(result *types100.Result, version string) (types.Result, error) {
	if version != "1.1.0" {
		for _, i := range result.Interfaces {
			i.Mtu = 0 // a field of 1.1.0
		}
	}
	converted, err := result.GetAsVersion(version)
	if err != nil {
		return nil, types.NewError(CodeIncompatibleVersion, fmt.Sprintf("converting the result to version %s", version), err.Error())
	}
	return converted, nil
}
