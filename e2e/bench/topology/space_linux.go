package topology

import (
	"context"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/netns"
)

// Space is the network of one machine or pod.
type Space struct{ *netns.Space }

func newSpace(name string) (*Space, error) {
	inside, err := netns.New(name)
	return &Space{inside}, err
}

// toolTimeout bounds one program; emulated kernels are slow, hanging ones are slower.
const toolTimeout = 10 * time.Minute

// Shell runs lines of shell in the namespace, and stops at the first that fails.
func (s *Space) Shell(ctx context.Context, script string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	_, err := s.Space.Shell(ctx, script)
	return err
}

// wire joins two namespaces with a veth pair.
func wire(a *Space, linkA string, b *Space, linkB string) error {
	return netns.Wire(a.Space, linkA, b.Space, linkB)
}
