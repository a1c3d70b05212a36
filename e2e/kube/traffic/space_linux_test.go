package traffic

import (
	"context"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/netns"
)

// space is the network of one machine or pod.
type space struct {
	inside *netns.Space
	name   string
}

// newSpace makes a namespace that lives until the test ends.
func newSpace(t *testing.T, name string) *space {
	t.Helper()
	inside, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inside.Close)
	return &space{inside, name}
}

// do runs f inside the namespace: sockets and processes that it makes belong there for good.
func (s *space) do(f func() error) error { return s.inside.Do(f) }

// toolTimeout bounds one program; emulated kernels are slow, hanging ones are slower.
const toolTimeout = 2 * time.Minute

// shell runs lines of shell in the namespace, stopping at the first that fails, and returns what they print.
func (s *space) shell(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	out, err := s.inside.Shell(ctx, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ip gives commands to ip in one go.
func (s *space) ip(t *testing.T, commands ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	must(t, s.inside.IP(ctx, commands...))
}

// wire joins two namespaces with a veth pair.
func wire(t *testing.T, a *space, linkA string, b *space, linkB string) {
	t.Helper()
	must(t, netns.Wire(a.inside, linkA, b.inside, linkB))
}
