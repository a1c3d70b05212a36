package sysctl_test

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// node is a directory that looks like the root of a node.
type node struct{ nodefs.Node }

func newNode(t *testing.T) node {
	t.Helper()
	return node{nodefs.New(t)}
}

// handle returns what a fresh process on the node would have.
func (n node) handle(t *testing.T) *sysctl.Handle {
	t.Helper()
	return sysctl.New(zaptest.NewLogger(t), sysctl.Options{Files: n.Files(), RunDir: n.Run})
}

// observed returns a handle and what it has logged, from Info on.
func (n node) observed() (*sysctl.Handle, func() []observer.LoggedEntry) {
	core, logs := observer.New(zap.InfoLevel)
	return sysctl.New(zap.New(core), sysctl.Options{Files: n.Files(), RunDir: n.Run}), logs.All
}
