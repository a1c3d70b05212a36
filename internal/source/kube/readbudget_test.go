package kube

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// pieces counts how often it is read.
type pieces struct {
	bytes.Reader
	reads int
}

func (p *pieces) Read(b []byte) (int, error) {
	p.reads++
	return p.Reader.Read(b)
}

// Small reads of a decoder are not those of the connection, and are counted all the same.
func TestAnswersAreReadInLargePieces(t *testing.T) {
	const size = 1 << 20
	in := &pieces{}
	in.Reset(make([]byte, size))
	a := newReadBudget(size)
	q, err := http.NewRequestWithContext(withReadBudget(t.Context(), a), http.MethodGet, "https://api", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Response{Body: io.NopCloser(in)}
	bound(q, r)
	n, b := 0, make([]byte, 100)
	for {
		k, err := r.Body.Read(b)
		if n += k; err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n != size || a.read.Load() != size || in.reads > size/bodyBuffer+1 {
		t.Errorf("%d bytes, %d of them counted, in %d reads; want %d in %d", n, a.read.Load(), in.reads, size, size/bodyBuffer+1)
	}
}
