package packet

import (
	"fmt"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// This file and those whose names begin like it are about iptables mode. Its tests are named TestIPTables…, so that they can be
// asked for alone: they need no IPVS.

// iptablesKinds are the programs that rules are written by.
var iptablesKinds = []string{"nft", "legacy"}

// inIPTables are the flags of an agent in iptables mode, without audits unless more flags say otherwise.
func inIPTables(kind string, more ...string) []string {
	return append([]string{"--proxy-mode", "iptables", "--iptables-backend", kind, "--iptables-sync-period", "1h"}, more...)
}

// eachKind runs a test with rules of either kind, each in a world of its own.
func eachKind(t *testing.T, test func(t *testing.T, kind string)) {
	t.Helper()
	needKernel(t)
	t.Parallel()
	for _, kind := range iptablesKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// speaksFrom makes the node use one of its addresses as source where it has the choice, as the
// default route of a node does. No virtual address is on a link of this node, so this is the
// address of the host.
func (n *node) speaksFrom(t *testing.T, addr pair) {
	t.Helper()
	n.shell(t, fmt.Sprintf("ip route replace default dev nowhere src %s; ip -6 route replace default dev nowhere src %s", addr.v4, addr.v6))
}

// iptablesWorld is a world for a test of iptables mode.
func iptablesWorld(t *testing.T) *world {
	t.Helper()
	w := buildWorld(t)
	w.node.speaksFrom(t, fabAddr)
	return w
}

// iptablesTruth asks two nodes in iptables mode.
func iptablesTruth(t *testing.T, kind string, flags ...string) *truthWorld {
	t.Helper()
	c := buildCluster(t, inIPTables(kind, flags...)...)
	c.a.speaksFrom(t, fabAddr)
	c.b.speaksFrom(t, otherAddr)
	return truthIn(t, c)
}

// TestIPTablesTruthTable asks the kernel each cell of testdata/truth.txt, with the differences of iptables mode.
func TestIPTablesTruthTable(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		all := truthOfIPTables(t, truthFile)
		iptablesTruth(t, kind, byNodeCIDR...).everything(t, all)
	})
}

// TestIPTablesTruthUnderOtherSettings asks by TCP alone: the settings change only the sources of packets.
func TestIPTablesTruthUnderOtherSettings(t *testing.T) {
	t.Parallel()
	for _, s := range []setting{atBridge, masqueradeAll, noDetector} {
		t.Run(s.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, kind string) {
				all := truthOfIPTables(t, s.file)
				w := iptablesTruth(t, kind, s.flags...)
				put(t, truthColumns, w.all(all, backend.TCP))
			})
		})
	}
}
