// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded

import "regexp"

// crashes match the messages of Octavia's 500s for requests of any kind. They are Python's
// messages about an unchecked value, and messages of the database.
var crashes = regexp.MustCompile(`^('\w+' object (has no attribute '\w+'|is not (iterable|subscriptable))` +
	`|(int|float)\(\) argument must be .*|cannot convert float infinity to integer|'utf-8' codec can't decode .*` +
	`|'>=' not supported between instances of 'int' and 'NoneType'|'<' not supported between instances of .*` +
	`|'name'|'quota'|Something unknown went wrong|None does not appear to be an IPv4 or IPv6 address` +
	`|Column '\w+' cannot be null|Cannot add or update a child row.*` +
	`|Provider 'ovn' reports error: failed to detect a valid IP address from Unset` +
	`|(?s)Provider '\w+' reports error: IP address .* already allocated.*)$`)

// Crashed reports whether Octavia was observed to answer 500 with this message. A simulator must
// answer no other 500, except those requested by dials.
func Crashed(faultstring string) bool { return crashes.MatchString(faultstring) }
