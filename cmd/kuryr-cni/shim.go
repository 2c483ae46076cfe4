// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// A daemon that is being replaced is back within a second or two. Waiting for
// it is quicker than failing: the kubelet comes back after many seconds, with a
// new sandbox.
const (
	daemonGrace = 5 * time.Second
	daemonRetry = 50 * time.Millisecond
)

// add, del and relay answer CNI calls by asking the daemon. Their errors are *types.Error.
func add(args *skel.CmdArgs) error {
	if own, err := ns.CheckNetNS(args.Netns); err != nil || own {
		return types.NewError(cni.CodeInvalidNetns, "CNI_NETNS is the node's own network namespace", args.Netns)
	}
	conf, err := cni.ParseConfig(args.StdinData)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), conf.Timeout)
	defer cancel()
	answer, err := callPatiently(ctx, conf.Socket, request("ADD", args))
	if err != nil {
		return failure(err, conf, cni.CodeNoDaemon)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if answer.Result == nil {
		return types.NewError(cni.CodeInternal, "the Kuryr daemon answered ADD without a result", "")
	}
	result, err := cni.Convert(answer.Result, conf.CNIVersion)
	if err != nil {
		return err
	}
	if err := result.PrintTo(os.Stdout); err != nil {
		return types.NewError(cni.CodeIO, "printing the result", err.Error())
	}
	return nil
}

// del also succeeds while the daemon is away: it leaves a request for the daemon. Otherwise no pod
// could be deleted while the daemon is replaced, or after Kuryr was removed from the node.
func del(args *skel.CmdArgs) error {
	// The library would have the call fail, each time, for a path that leads to the node's
	// own namespace by now, as /proc/PID/ns/net of a sandbox that is dead. The daemon
	// reads it as none: there is nothing to do in the pod.
	args.NetnsOverride = "1"
	conf, err := cni.ParseConfig(args.StdinData)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), conf.Timeout)
	defer cancel()
	req := request("DEL", args)
	answer, err := cni.Call(ctx, conf.Socket, req)
	if errors.Is(err, cni.ErrNoDaemon) {
		answer, err = leave(ctx, conf.Socket, req)
	}
	return finish(answer, err, conf, cni.CodeNoDaemon)
}

// leave leaves the DEL for the daemon and asks once more: it may have come
// back in between and have looked before the DEL was there.
func leave(ctx context.Context, socket string, req cni.Request) (cni.Response, error) {
	if err := cni.Leave(socket, req); err != nil {
		return cni.Response{}, fmt.Errorf("%w: %w", cni.ErrNoDaemon, err)
	}
	answer, err := cni.Call(ctx, socket, req)
	if errors.Is(err, cni.ErrNoDaemon) {
		return cni.Response{}, nil
	}
	if err != nil || answer.Error != nil {
		return answer, err // the runtime repeats the DEL; what is left does no harm
	}
	// Harmless if it stays: the daemon knows that nothing is there any more.
	_ = cni.TakeBack(socket, req.ContainerID, req.IfName)
	return answer, nil
}

// relay sends the daemon a request without a result. away is the code of the error if the daemon
// does not answer.
func relay(command string, args *skel.CmdArgs, away uint) error {
	conf, err := cni.ParseConfig(args.StdinData)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), conf.Timeout)
	defer cancel()
	answer, err := cni.Call(ctx, conf.Socket, request(command, args))
	return finish(answer, err, conf, away)
}

func request(command string, args *skel.CmdArgs) cni.Request {
	return cni.Request{
		Command: command, ContainerID: args.ContainerID, Netns: args.Netns,
		IfName: args.IfName, Args: args.Args, Config: args.StdinData,
	}
}

// callPatiently is cni.Call that gives a daemon that is not there some time.
// A connection that breaks after the request was sent is not repeated: the
// runtime decides that.
func callPatiently(ctx context.Context, socket string, req cni.Request) (cni.Response, error) {
	end := time.Now().Add(daemonGrace)
	for {
		answer, err := cni.Call(ctx, socket, req)
		if !errors.Is(err, cni.ErrNoListener) || time.Now().After(end) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(daemonRetry):
		}
	}
}

func finish(answer cni.Response, err error, conf cni.Config, away uint) error {
	if err != nil {
		return failure(err, conf, away)
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

func failure(err error, conf cni.Config, away uint) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return types.NewError(away, fmt.Sprintf("the Kuryr daemon did not answer in %s", conf.Timeout), err.Error())
	}
	return types.NewError(away, fmt.Sprintf("the Kuryr daemon of this node does not answer on %s: is its pod running?", conf.Socket), err.Error())
}
