// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

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
