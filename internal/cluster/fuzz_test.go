package cluster_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
)

// FuzzAnswers joins any answer of one node with that of another one that is well. A report is made, and
// no control character of an answer reaches a terminal.
func FuzzAnswers(f *testing.F) {
	hostile := "\x1b[2J\nworker-1: forged\u202e"
	for _, v := range []any{
		agent.Status{Mode: hostile, LastError: hostile, Unreadable: []string{hostile}, About: agent.About{Version: hostile}},
		linediff.Report{Rows: []linediff.Odd{{Kind: hostile, Side: "kernel", Row: hostile}}},
		explain.Report{Verdict: []string{hostile, ""}},
		inspect.List[inspect.ServiceRow]{Items: []inspect.ServiceRow{{Namespace: hostile, Name: hostile, State: "x", Ports: []string{hostile}}, {Namespace: hostile, Name: hostile}}},
		inspect.List[inspect.MovingRow]{Items: []inspect.MovingRow{{Backend: hostile, State: hostile}}, More: map[string]int{"x": -7}},
		diagnosis.Report{Items: []diagnosis.Item{{Name: hostile, State: "missing", Detail: hostile}}},
		top.Report{Services: []top.ServiceReport{{Name: hostile, Rates: top.Rates{BytesIn: -1}}}, Backends: []top.BackendReport{{Address: hostile}}},
		agent.AuditReport{Unread: hostile, Tables: []agent.AuditTable{{Table: hostile, Remaining: 1, Rows: []string{hostile}}}},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, hostile, 0)
	}
	f.Add([]byte("null"), "kube-ipvs: "+hostile, 2)
	f.Fuzz(func(t *testing.T, out []byte, notes string, status int) {
		nodes := []cluster.Node{{Name: "worker-1"}, {Name: "worker-2"}}
		well := wellNode(t, "worker-2")
		asks := func(_ context.Context, n cluster.Node, args []string, _ int64) (cluster.Answer, error) {
			if a, there := well[strings.Join(args[:min(2, len(args))], " ")]; there && n.Name == "worker-2" {
				return a, nil
			}
			return cluster.Answer{Status: status, Out: out, Notes: notes}, nil
		}
		for _, q := range []cluster.Question{
			&cluster.Status{Now: now}, &cluster.Services{}, &cluster.Explain{Target: "a/b"}, &cluster.Diff{}, &cluster.Check{}, &cluster.Top{}, &cluster.Top{Service: "a/b"},
			&cluster.Drains{Now: now}, &cluster.Versions{}, &cluster.Audit{},
		} {
			r := cluster.Run(t.Context(), nodes, asks, q, cluster.Options{Parallel: 2, Deadline: time.Minute})
			if r.Nodes != 2 || r.Answered+len(r.Silent) != 2 {
				t.Errorf("%s: %d of %d answered, %d silent", r.Verb, r.Answered, r.Nodes, len(r.Silent))
			}
			for _, wide := range []bool{false, true} {
				for _, c := range text(t, r, wide) {
					if c != '\n' && !unicode.IsPrint(c) {
						t.Fatalf("%s prints %q of %q", r.Verb, c, out)
					}
				}
			}
		}
	})
}
