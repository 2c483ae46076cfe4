// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded

import "regexp"

// crashes are the 500s that Octavia gives, of any kind of request: what Python says of a value that
// nothing checked, and what the database says.
var crashes = regexp.MustCompile(`^('\w+' object (has no attribute '\w+'|is not (iterable|subscriptable))` +
	`|(int|float)\(\) argument must be .*|cannot convert float infinity to integer|'utf-8' codec can't decode .*` +
	`|'>=' not supported between instances of 'int' and 'NoneType'|'<' not supported between instances of .*` +
	`|'name'|'quota'|Something unknown went wrong|None does not appear to be an IPv4 or IPv6 address` +
	`|Column '\w+' cannot be null|Cannot add or update a child row.*` +
	`|Provider 'ovn' reports error: failed to detect a valid IP address from Unset` +
	`|(?s)Provider '\w+' reports error: IP address .* already allocated.*)$`)

// Crashed reports whether Octavia was seen to answer 500 with these words. Who
// simulates it answers no other 500 but what was dialled.
func Crashed(faultstring string) bool { return crashes.MatchString(faultstring) }
