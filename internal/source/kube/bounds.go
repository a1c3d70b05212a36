package kube

import (
	"context"
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
}

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
		r.Body = &boundBody{r.Body, a}
	}
}

type boundBody struct {
	io.ReadCloser
	*allowance
}

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read.Add(int64(n)) > b.most {
		return n, fmt.Errorf("%w: more than %d MiB", errEndless, b.most>>20)
	}
	return n, err
}
