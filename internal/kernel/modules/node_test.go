package modules_test

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// node is a directory that looks like the root of a node.
type node struct{ nodefs.Node }

func newNode(t *testing.T) node {
	t.Helper()
	return node{nodefs.New(t)}
}

// loader returns what a fresh process on the node would have.
func (n node) loader(t *testing.T) *modules.Loader {
	t.Helper()
	return modules.New(zaptest.NewLogger(t), modules.Options{Files: n.Files(), Modprobe: n.Path("sbin/modprobe")})
}

// observed returns a loader and what it has logged, from Info on.
func (n node) observed() (*modules.Loader, func() []observer.LoggedEntry) {
	core, logs := observer.New(zap.InfoLevel)
	return modules.New(zap.New(core), modules.Options{Files: n.Files(), Modprobe: n.Path("sbin/modprobe")}), logs.All
}
