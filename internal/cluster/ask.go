package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// A Node is a node of the cluster with the pod of its agent.
type Node struct{ Name, Pod string }

// An Answer is what a verb printed on one node, and its exit status.
type Answer struct {
	Status int
	Out    []byte
	// Notes is the start of standard error.
	Notes string
}

// An Asker runs a verb on a node. It returns an error if the verb did not run, or if it printed more
// than limit bytes.
type Asker func(ctx context.Context, n Node, args []string, limit int64) (Answer, error)

// Limits of the output of one verb in bytes.
const (
	smallAnswer = 4 << 20
	largeAnswer = 16 << 20
)

// Options bound a round of questions.
type Options struct {
	// Parallel is how many nodes are asked at a time, and Deadline the time that one node has for all
	// verbs of a question.
	Parallel int
	Deadline time.Duration
	// Progress is called with the number of nodes that are done, on the goroutine of Run; nil is not.
	Progress func(done, of int)
}

// ask runs verbs on one node.
type ask func(ctx context.Context, limit int64, args ...string) (Answer, error)

// A Question asks nodes and joins their answers.
type Question interface {
	// visit has the conversation with one node; it is called from many goroutines. add records the
	// answers and is called for one node at a time.
	visit(ctx context.Context, ask ask) (add func(Node), err error)
	// join makes the report of all nodes that answered.
	join(r *Report)
}

// outcome is the end of the conversation with one node.
type outcome struct {
	node Node
	add  func(Node)
	err  error
}

// Run asks every node and returns the report. A node that does not answer is a part of the report.
func Run(ctx context.Context, nodes []Node, via Asker, q Question, o Options) Report {
	todo, done := make(chan Node), make(chan outcome)
	var workers sync.WaitGroup
	for range min(max(o.Parallel, 1), max(len(nodes), 1)) {
		workers.Go(func() {
			for n := range todo {
				done <- converse(ctx, n, via, q, o.Deadline)
			}
		})
	}
	go func() {
		for _, n := range nodes {
			todo <- n
		}
		close(todo)
		workers.Wait()
		close(done)
	}()
	r := Report{Nodes: len(nodes), Silent: []Silence{}, Findings: []Finding{}, Common: []Fact{}, Items: []any{}}
	count := 0
	for one := range done {
		count++
		if one.err != nil {
			r.Silent = append(r.Silent, Silence{Node: one.node.Name, Pod: one.node.Pod, Why: shortened(one.err.Error())})
		} else {
			one.add(one.node)
			r.Answered++
		}
		if o.Progress != nil {
			o.Progress(count, len(nodes))
		}
	}
	slices.SortFunc(r.Silent, func(a, b Silence) int { return compareNames(a.Node, b.Node) })
	q.join(&r)
	r.finish()
	return r
}

// converse asks one node within its deadline.
func converse(ctx context.Context, n Node, via Asker, q Question, deadline time.Duration) outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("no answer within %s", deadline))
	defer cancel()
	add, err := q.visit(ctx, func(ctx context.Context, limit int64, args ...string) (Answer, error) {
		a, err := via(ctx, n, args, limit)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return a, err
	})
	return outcome{n, add, err}
}

// failed is the exit status of a verb without an answer.
const failed = 2

// decoded runs a verb and decodes its output.
func decoded[T any](ctx context.Context, ask ask, limit int64, args ...string) (v T, err error) {
	out, err := printed(ctx, ask, limit, args...)
	if err != nil {
		return v, err
	}
	return decode[T](out, args)
}

// printed runs a verb and returns its output, which it prints with status 0 and 1.
func printed(ctx context.Context, ask ask, limit int64, args ...string) ([]byte, error) {
	a, err := ask(ctx, limit, args...)
	if err != nil {
		return nil, err
	}
	out := bytes.TrimSpace(a.Out)
	if a.Status >= failed || len(out) == 0 {
		return nil, refusal(a)
	}
	return out, nil
}

func decode[T any](out []byte, args []string) (v T, err error) {
	if err := json.Unmarshal(out, &v); err != nil {
		return v, fmt.Errorf("%s: the answer is no JSON that this release knows: %w", strings.Join(args, " "), err)
	}
	return v, nil
}

// unknown reports whether a verb failed because the node does not know the Service.
func unknown(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "is known to this node") || strings.Contains(err.Error(), "no virtual server on this node is of Service"))
}

// refusal returns the error that a verb printed.
func refusal(a Answer) error {
	text := ""
	for line := range strings.Lines(a.Notes) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "warning:") {
			text = strings.TrimPrefix(line, "kube-ipvs: ")
			break
		}
	}
	if text == "" {
		text = fmt.Sprintf("exit status %d and no output", a.Status)
	}
	return errors.New(text)
}

// longest is the length of a text of a node in a sentence, in bytes.
const longest = 300

// shortened returns the first line of a text, cut where it is too long.
func shortened(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) <= longest {
		return text
	}
	cut := longest
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// compareNames orders worker-9 before worker-10.
func compareNames(a, b string) int {
	restA, restB := a, b
	for restA != "" && restB != "" {
		if digit(restA[0]) && digit(restB[0]) {
			numA, numB := number(restA), number(restB)
			trimA, trimB := strings.TrimLeft(numA, "0"), strings.TrimLeft(numB, "0")
			if c := cmp.Or(cmp.Compare(len(trimA), len(trimB)), cmp.Compare(trimA, trimB)); c != 0 {
				return c
			}
			restA, restB = restA[len(numA):], restB[len(numB):]
			continue
		}
		if restA[0] != restB[0] {
			return cmp.Compare(restA[0], restB[0])
		}
		restA, restB = restA[1:], restB[1:]
	}
	return cmp.Or(cmp.Compare(len(restA), len(restB)), cmp.Compare(a, b))
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// number returns the digits at the start of a text.
func number(s string) string {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return s[:n]
}
