// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"strconv"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// maxFill is how many free ports a pool may be asked to have, as spec.min.
const maxFill = 10000

// ParseFill reads the annotation that asks for free ports.
func ParseFill(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || n > maxFill {
		return 0, fmt.Errorf("%s is %.40q: write a number from 0 to %d, as in \"20\"", v1.FillAnnotation, value, maxFill)
	}
	return int(n), nil
}
