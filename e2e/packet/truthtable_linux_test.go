package packet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// truthWorld is a cluster with a Service for each way to set policies and endpoints, all at once.
type truthWorld struct {
	*cluster
	services map[cell]service // by the cell without client and frontend
}

// newTruthWorld starts both agents in ipvs mode.
func newTruthWorld(t *testing.T, flags ...string) *truthWorld {
	t.Helper()
	return truthIn(t, newCluster(t, flags...))
}

// truthIn starts both agents on the Services of the table, and on those of the hairpins: their only endpoint is web-a.
func truthIn(t *testing.T, c *cluster) *truthWorld {
	t.Helper()
	w := &truthWorld{c, map[cell]service{}}
	w.webA.serve(t, 8080)
	w.webB.serve(t, 8080)
	for _, c := range cells() {
		w.add(cell{dimInternal: c[dimInternal], dimExternal: c[dimExternal], dimEnds: c[dimEnds]})
		w.add(cell{dimInternal: c[dimInternal], dimExternal: c[dimExternal], dimEnds: self})
	}
	w.start(t, slices.Collect(maps.Values(w.services))...)
	return w
}

// self are the endpoints of a Service whose client is its only endpoint.
const self = "self"

// add creates a Service with addresses of its own, outside every range that a node knows.
func (w *truthWorld) add(c cell) {
	if _, known := w.services[c]; known {
		return
	}
	s := numberedService(len(w.services) + 1)
	s.name = strings.ToLower(strings.Join(c[dimInternal:], "-"))
	s.internalLocal, s.externalLocal = c[dimInternal] == "Local", c[dimExternal] == "Local"
	s.backends = endpoints(w.backends(c[dimEnds])...)
	for i := range s.backends {
		s.backends[i].terminating = c[dimEnds] == "terminating"
	}
	w.services[c] = s
}

// numberedService is one of several with an address of every kind.
func numberedService(i int) service {
	return service{
		name: fmt.Sprintf("service-%d", i), ports: webPorts(),
		vip:      pair{fmt.Sprintf("10.96.1.%d", i), fmt.Sprintf("fd00:96::1:%x", i)},
		external: pair{fmt.Sprintf("198.18.1.%d", i), fmt.Sprintf("2001:db8:e::%x", i)},
		lb:       pair{fmt.Sprintf("198.18.2.%d", i), fmt.Sprintf("2001:db8:f::%x", i)},
		nodePort: 30100 + i,
	}
}

// target is the address and port of a frontend of a Service; a NodePort is that of a node's address.
func (s service) target(frontend string, node pair) (pair, int) {
	if frontend == "NodePort" {
		return node, s.nodePort
	}
	return map[string]pair{"ClusterIP": s.vip, "ExternalIP": s.external, "LoadBalancer": s.lb}[frontend], 80
}

// backends are the pods behind a word of the table.
func (w *truthWorld) backends(word string) []*pod {
	return map[string][]*pod{
		"local": {w.webA, w.webB}, "terminating": {w.webA, w.webB}, "remote": {w.webB}, self: {w.webA},
	}[word]
}

// questions turns a cell into what has to happen.
func (w *truthWorld) questions(c cell, says answer, protos ...backend.Proto) []*question {
	s := w.services[cell{dimInternal: c[dimInternal], dimExternal: c[dimExternal], dimEnds: c[dimEnds]}]
	to, port := s.target(c[dimFrontend], fabAddr)
	out := ask("", w.client(c), to, port, w.outcome(c, says), protos...)
	for _, q := range out {
		q.about = []any{c[dimClient], c[dimFrontend], c[dimInternal], c[dimExternal], c[dimEnds], strings.Trim(says.outcome+" "+says.source, " -")}
	}
	return out
}

// truthColumns are those of a cell and its answer.
var truthColumns = []any{"client", "frontend", "iTP", "eTP", "endpoints", "truth"}

func (w *truthWorld) client(c cell) *pod {
	return map[string]*pod{
		"pod": w.askerA, "pod-elsewhere": w.askerB, "host": w.a.host(), "outside": w.outside, self: w.webA,
	}[c[dimClient]]
}

// outcome returns the backends that have to answer in this world, and the client addresses that they may see.
func (w *truthWorld) outcome(c cell, says answer) outcome {
	switch says.outcome {
	case "refused":
		return refused
	case "dropped":
		return dropped
	}
	forwarder := w.a
	if c[dimClient] == "pod-elsewhere" && c[dimFrontend] != "NodePort" {
		forwarder = w.b
	}
	answering := slices.DeleteFunc(w.backends(c[dimEnds]), func(p *pod) bool {
		return says.outcome == "here" && p.node != forwarder.name
	})
	if says.source == "own" {
		return by(answering...).seeing(w.client(c).addr)
	}
	return by(answering...).seeing(forwarder.own...)
}

// TestTruthTable asks the kernel each cell of testdata/truth.txt. The two tables beside it are about what the file leaves out.
func TestTruthTable(t *testing.T) {
	t.Parallel()
	all := truth(t, truthFile)
	w := newTruthWorld(t, byNodeCIDR...)
	w.everything(t, all)
}

// everything asks each cell by TCP and by UDP, and what the file leaves out.
func (w *truthWorld) everything(t *testing.T, all map[cell]answer) {
	t.Helper()
	for _, proto := range []backend.Proto{backend.TCP, backend.UDP} {
		t.Run(string(proto), func(t *testing.T) { put(t, truthColumns, w.all(all, proto)) })
	}
	t.Run("sctp", func(t *testing.T) {
		if !kernelHasSCTP() && !kernelHasIPVS() {
			t.Skip("this kernel has no SCTP sockets")
		}
		put(t, truthColumns, w.sctpBasics(all))
	})
	t.Run("an endpoint asks itself", func(t *testing.T) { put(t, truthColumns, w.hairpins()) })
}

// setting are flags of an agent, and the truth under them.
type setting struct {
	name, file string
	flags      []string
}

// Settings under which the truth is asked for in every mode.
var (
	byNodeCIDR    = []string{"--detect-local-mode", "NodeCIDR"}
	byBridge      = []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0"}
	atBridge      = setting{"pods are told by the bridge", truthFile, byBridge}
	masqueradeAll = setting{"masquerade all", masqueradeAllFile, slices.Concat(byNodeCIDR, []string{"--masquerade-all"})}
	noDetector    = setting{"no detector", noDetectorFile, nil}
	captured      = setting{"external addresses are captured", truthFile, slices.Concat(byNodeCIDR, []string{"--external-binding", "capture"})}
)

// TestTruthUnderOtherSettings asks by TCP alone: the settings change only the sources of packets.
func TestTruthUnderOtherSettings(t *testing.T) {
	truthUnder(t, nil,
		setting{"pods are told by the bridge, and rules are legacy", truthFile, slices.Concat(byBridge, []string{"--iptables-backend", "legacy"})},
		masqueradeAll, noDetector, captured,
		setting{"external addresses are bound", truthFile, slices.Concat(byNodeCIDR, []string{"--external-binding", "bind"})},
	)
}

// truthUnder asks the whole table by TCP under each of some settings, with more flags.
func truthUnder(t *testing.T, more []string, settings ...setting) {
	t.Helper()
	t.Parallel()
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			all := truth(t, s.file)
			w := newTruthWorld(t, slices.Concat(s.flags, more)...)
			put(t, truthColumns, w.all(all, backend.TCP))
		})
	}
}

// all are the questions of a whole table.
func (w *truthWorld) all(truth map[cell]answer, proto backend.Proto) []*question {
	var out []*question
	for _, c := range cells() {
		out = append(out, w.questions(c, truth[c], proto)...)
	}
	return out
}

// sctpBasics are the cells that SCTP is asked: every client and frontend, with policies Cluster and endpoints on both nodes.
func (w *truthWorld) sctpBasics(all map[cell]answer) []*question {
	var out []*question
	for _, c := range cells() {
		if c[dimInternal] == "Cluster" && c[dimExternal] == "Cluster" && c[dimEnds] == "local" {
			out = append(out, w.questions(c, all[c], backend.SCTP)...)
		}
	}
	return out
}

// hairpins: the only endpoint of a Service reaches itself through each frontend under each policy, and never sees its own
// address, or it would answer itself past the node.
func (w *truthWorld) hairpins() []*question {
	var out []*question
	for _, c := range cells() {
		if c[dimClient] == "pod" && c[dimEnds] == "local" {
			c[dimClient], c[dimEnds] = self, self
			out = append(out, w.questions(c, answer{"any", "node"}, spoken()...)...)
		}
	}
	return out
}
