package host_test

import (
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// key is a sysctl that every node has.
const key = "net.ipv4.ip_forward"

// node is a directory that looks like the root of a node.
type node struct{ nodefs.Node }

func newNode(t *testing.T) node {
	t.Helper()
	return node{nodefs.New(t)}
}

// host returns the node as the checks see it.
func (n node) host(t *testing.T) *host.Node {
	t.Helper()
	log := zaptest.NewLogger(t)
	return host.New(n.Files(), n.Run, sysctl.New(log, sysctl.Options{Files: n.Files(), RunDir: n.Run}),
		modules.New(log, modules.Options{Files: n.Files(), Modprobe: n.Path("sbin/modprobe")}))
}
