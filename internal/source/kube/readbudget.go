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

// errTooLarge ends an answer that is too long. client-go reads a list, and an event in JSON, to its
// end before it decodes it, compressed or not, however long it is.
var errTooLarge = errors.New("the answer is too long for an API server")

// readBudget bounds the bytes of an answer, after decompression, that are read before an object is
// decoded.
type readBudget struct {
	most int64
	read atomic.Int64 // since the last renewal
	// start is the beginning of the last answer; empty if keeps is not set.
	start []byte
	keeps bool
}

// startKept is how many bytes of the beginning of a list are kept: an empty list is shorter.
const startKept = 4 << 10

func newReadBudget(most int64) *readBudget { return &readBudget{most: most} }

// renew allows as many bytes again: an object was decoded.
func (a *readBudget) renew() { a.read.Store(0) }

// readBudgetKey is the key of a request's readBudget in its context.
type readBudgetKey struct{}

func withReadBudget(ctx context.Context, a *readBudget) context.Context {
	return context.WithValue(ctx, readBudgetKey{}, a)
}

// bound limits an answer to the readBudget of its request.
func bound(q *http.Request, r *http.Response) {
	if a, ok := q.Context().Value(readBudgetKey{}).(*readBudget); ok {
		a.start = nil
		r.Body = &boundBody{bufio.NewReaderSize(r.Body, bodyBuffer), r.Body, a}
	}
}

// bodyBuffer is how many bytes are read at once. Decoders read an event in two or three small
// pieces, and HTTP/2 answers each 4 KiB that are read with a message to the server
// (inflowMinRefresh, golang.org/x/net/http2).
const bodyBuffer = 64 << 10

type boundBody struct {
	io.Reader
	io.Closer
	*readBudget
}

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.keeps {
		b.start = append(b.start, p[:min(n, startKept-len(b.start))]...)
	}
	if b.read.Add(int64(n)) > b.most {
		return n, fmt.Errorf("%w: more than %d MiB", errTooLarge, b.most>>20)
	}
	return n, err
}

// missingKind reports whether the answer was JSON without a kind. client-go takes any such object
// for the requested one.
func (a *readBudget) missingKind() bool {
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
