// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// The causes of a call's context that ended early.
var (
	errHungUp     = errors.New("the container runtime cancelled the call")
	errStopping   = errors.New("the Kuryr daemon is stopping")
	errSuperseded = errors.New("a DEL of the same sandbox came in between")
	errPodGone    = errors.New("the port is no longer bound to this pod")
)

var errNotSynced = errors.New("the KuryrPorts of this node have not been read from the Kubernetes API yet")

// interrupted returns the answer to a call whose context has ended early. It returns nil after
// its deadline and before its end.
func interrupted(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case cause == nil, errors.Is(cause, context.DeadlineExceeded):
		return nil
	case errors.Is(cause, errPodGone):
		return types.NewError(cni.CodePodGone, "the pod was deleted meanwhile", cause.Error())
	default:
		return types.NewError(cni.CodeTryAgain, cause.Error(), "")
	}
}

// plugError returns the answer to a failed call of a driver. The first match counts: a driver
// that asks for another try has failed, too.
func plugError(doing string, err error) error {
	code := cni.CodeInternal
	for _, known := range []struct {
		err  error
		code uint
	}{
		{plug.ErrNoNetns, cni.CodeInvalidNetns},
		{plug.ErrInvalid, cni.CodeInvalidConfig},
		{plug.ErrUnknownType, cni.CodeUnknownType},
		{plug.ErrNotWired, cni.CodeNotWired},
		{plug.ErrTryAgain, cni.CodeTryAgain},
		{plug.ErrDriver, cni.CodeDriver},
		{plug.ErrDataPath, cni.CodeDataPath},
		{context.DeadlineExceeded, cni.CodeDataPath}, // the slow part is the switch
	} {
		if errors.Is(err, known.err) {
			code = known.code
			break
		}
	}
	return types.NewError(code, doing, err.Error())
}

// asCNI converts any error to a CNI error.
func asCNI(err error) *types.Error {
	if err == nil {
		return nil
	}
	var e *types.Error
	if errors.As(err, &e) {
		return e
	}
	return types.NewError(cni.CodeInternal, "a fault in the Kuryr daemon", fmt.Sprint(err))
}
