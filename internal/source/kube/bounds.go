package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// errEndless: what answers goes on and on. client-go reads a list, and an event in
// JSON, to its end before it looks at it, compressed or not, however long that is.
var errEndless = errors.New("the answer is longer than any of an API server")

// allowance bounds what may be read of an answer, after decompression, before something
// could be made of it.
type allowance struct {
	most int64
	read atomic.Int64 // since the last renewal
	// start is how the last answer begins, of those that are read by whoever made the
	// allowance; empty where keeps is not set.
	start []byte
	keeps bool
}

// startKept is how much is kept of the start of a list: one with nothing in it is shorter.
const startKept = 4 << 10

func newAllowance(most int64) *allowance { return &allowance{most: most} }

// renew allows as much again: something came of what was read.
func (a *allowance) renew() { a.read.Store(0) }

// allowanceKey is where a context carries the allowance of a request.
type allowanceKey struct{}

func withAllowance(ctx context.Context, a *allowance) context.Context {
	return context.WithValue(ctx, allowanceKey{}, a)
}

// bound puts an answer under the allowance of its request.
func bound(q *http.Request, r *http.Response) {
	if a, ok := q.Context().Value(allowanceKey{}).(*allowance); ok {
		a.start = nil
		r.Body = &boundBody{bufio.NewReaderSize(r.Body, bodyBuffer), r.Body, a}
	}
}

// bodyBuffer is how much is taken at once of what has come. Decoders read an event in two or
// three small pieces, and HTTP/2 answers each 4 KiB that were taken with a message to the
// server (inflowMinRefresh, golang.org/x/net/http2): a tenth of the time of a first list.
const bodyBuffer = 64 << 10

type boundBody struct {
	io.Reader
	io.Closer
	*allowance
}

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.keeps {
		b.start = append(b.start, p[:min(n, startKept-len(b.start))]...)
	}
	if b.read.Add(int64(n)) > b.most {
		return n, fmt.Errorf("%w: more than %d MiB", errEndless, b.most>>20)
	}
	return n, err
}

// kindless tells whether the answer was JSON that says not of which kind it is. client-go
// takes any such object for what was asked for.
func (a *allowance) kindless() bool {
	d := json.NewDecoder(bytes.NewReader(a.start))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return false // protobuf, or no answer at all
	}
	for d.More() {
		key, err := d.Token()
		var value any
		if err != nil || d.Decode(&value) != nil {
			return true
		}
		if key == "kind" {
			return value == "" || value == nil
		}
	}
	return true
}
