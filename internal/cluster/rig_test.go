package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// moment is the time of all tests.
var moment = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// now is the clock of all tests.
func now() time.Time { return moment }

// A fleet has the answers of each node by the first two words of the verb.
type fleet map[string]map[string]cluster.Answer

// ask is a cluster.Asker. A node without any answer never answers.
func (f fleet) ask(ctx context.Context, n cluster.Node, args []string, limit int64) (cluster.Answer, error) {
	answers := f[n.Name]
	if answers == nil {
		<-ctx.Done()
		return cluster.Answer{}, ctx.Err()
	}
	a, there := answers[args[0]]
	if !there {
		a, there = answers[strings.Join(args[:2], " ")]
	}
	switch {
	case !there:
		return cluster.Answer{}, fmt.Errorf("no answer to %q", args)
	case int64(len(a.Out)) > limit:
		return cluster.Answer{}, errors.New("the answer is too large")
	}
	return a, nil
}

func (f fleet) nodes() (out []cluster.Node) {
	for name := range f {
		out = append(out, cluster.Node{Name: name, Pod: "kube-ipvs-" + name})
	}
	slices.SortFunc(out, func(a, b cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// run asks all nodes a question.
func (f fleet) run(t *testing.T, q cluster.Question) cluster.Report {
	t.Helper()
	r := cluster.Run(t.Context(), f.nodes(), f.ask, q, cluster.Options{Parallel: 3, Deadline: 50 * time.Millisecond})
	conforms(t, r)
	return r
}

// conforms fails unless a report is what its schema requires.
func conforms(t *testing.T, r cluster.Report) {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile("../../manifests/schemas/cluster.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", r.Verb, err, text)
	}
}

// says is an answer in JSON.
func says(t testing.TB, status int, v any) cluster.Answer {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Answer{Status: status, Out: text}
}

// refuses is a verb that prints an error.
func refuses(notes string) cluster.Answer { return cluster.Answer{Status: 2, Notes: notes} }

// text is the report for people.
func text(t testing.TB, r cluster.Report, wide bool) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b, inspect.TableOptions{Wide: wide}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wellStatus is the status of an agent without a fault.
func wellStatus(node string) agent.Status {
	s := agent.Status{
		Node: node, Mode: "ipvs", About: agent.About{Version: "v0.1.0", Kernel: "6.12.0", Scheduler: "rr"},
		Synced: true, Complete: true, Ready: true, Healthy: true, Tables: []dataplane.TableStatus{{Table: "servers", Desired: 3}},
	}
	s.Services = 3
	s.LastAudit = &agent.AuditRecord{Ended: moment.Add(-90 * time.Second)}
	return s
}

// The rows of the Service that the faults are about.
const (
	server      = "-A -t 10.96.0.10:80 -s rr"
	destination = "-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1"
	entry       = "add KUBE-CLUSTER-IP 10.96.0.10,tcp:80"
)

const allIsWell = "all is well: default/web is served at 1 frontend, 1 of 1 endpoint take new connections, and the kernel has all of it"

// wellNode has the answers of a node without a fault.
func wellNode(t testing.TB, name string) map[string]cluster.Answer {
	return map[string]cluster.Answer{
		"show status": says(t, 0, wellStatus(name)),
		"diff":        says(t, 0, linediff.Report{Mode: "ipvs", Equal: true, Rows: []linediff.Odd{}}),
		"explain":     says(t, 0, explain.Report{Asked: "default/web", OK: true, Verdict: []string{allIsWell}}),
		"version":     says(t, 0, version.Details{Version: "v0.1.0", Commit: "0123456789abcdef", Go: "go1.26.8", Platform: "linux/amd64"}),
	}
}

// lacking has a node whose kernel lacks rows.
func lacking(t testing.TB, name, sentence, kind string, rows ...string) map[string]cluster.Answer {
	answers := wellNode(t, name)
	d := linediff.Report{Mode: "ipvs"}
	for _, r := range rows {
		d.Rows = append(d.Rows, linediff.Odd{Kind: kind, Side: linediff.Desired, Row: r})
	}
	answers["diff"] = says(t, 1, d)
	answers["explain"] = says(t, 1, explain.Report{Asked: "default/web", Verdict: []string{sentence}})
	return answers
}

// fiveFaults is a cluster of eight nodes. Five of them have one fault each: a deleted server, a
// flushed set, an old release, iptables mode, an agent that does not answer.
func fiveFaults(t testing.TB) fleet {
	f := fleet{}
	for i := 1; i <= 8; i++ {
		name := fmt.Sprintf("worker-%d", i)
		f[name] = wellNode(t, name)
	}
	f["worker-2"] = lacking(t, "worker-2", "virtual server -t 10.96.0.10:80 is missing in the kernel", "servers", server, destination)
	f["worker-3"] = lacking(t, "worker-3", "set KUBE-CLUSTER-IP lacks an entry in the kernel ("+entry+")", "sets", entry)
	old := wellStatus("worker-4")
	old.About = agent.About{}
	f["worker-4"]["show status"] = says(t, 0, old)
	f["worker-4"]["version"] = says(t, 0, version.Details{Version: "v0.0.9", Go: "go1.25.0", Platform: "linux/amd64"})
	f["worker-4"]["diff"] = refuses("kube-ipvs: unknown shorthand flag: 'o' in -o\n")
	rules := wellStatus("worker-5")
	rules.Mode = "iptables"
	f["worker-5"]["show status"] = says(t, 0, rules)
	f["worker-6"] = nil
	return f
}
