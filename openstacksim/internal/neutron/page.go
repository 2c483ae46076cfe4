// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
)

// pager is an answer that is written row by row, without the service's lock.
type pager interface{ write(w io.Writer) }

// page holds the rows of a kind at the time of the request. Stored rows never change, so the rows
// stay as they were.
type page[T any] struct {
	kind  *kind[T]
	call  *call
	rows  []*T // as views returned them
	links []link
}

// views runs seen for all rows. It needs the lock.
func (k *kind[T]) views(c *call, rows []*T) []*T {
	if k.view == nil && k.made == nil {
		return rows
	}
	out := slices.Clone(rows)
	for i, row := range out {
		out[i] = k.seen(c, row)
	}
	return out
}

// write needs memory for one row only. It ignores errors of the connection, because no client is
// left to report them to.
func (p *page[T]) write(w io.Writer) {
	out := bufio.NewWriterSize(w, 1<<15)
	_, _ = out.WriteString(`{"` + p.kind.many + `":[`)
	rows, fields := json.NewEncoder(lineless{out}), p.call.fields()
	for i, row := range p.rows {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err := rows.Encode(p.kind.pick(p.call, row, fields)); err != nil {
			return
		}
	}
	_ = out.WriteByte(']')
	if len(p.links) > 0 {
		_, _ = out.WriteString(`,"` + p.kind.many + `_links":`)
		_, _ = out.Write(encode(p.links))
	}
	_ = out.WriteByte('}')
	_ = out.Flush()
}

// lineless removes the line end that an Encoder writes after each value.
type lineless struct{ to *bufio.Writer }

func (l lineless) Write(b []byte) (int, error) {
	n, err := l.to.Write(b[:len(b)-1])
	return n + 1, err
}
