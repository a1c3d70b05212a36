package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit statuses of verbs. The agent itself, which has no verb, ends as kube-proxy does: with 0
// or 1.
const (
	// exitFound is the status of a verb that found a difference or a fault, or did not find the
	// object that was named.
	exitFound = 1
	// exitFailed is the status of a verb without an answer: the command line is wrong, no agent
	// answers, or something cannot be read.
	exitFailed = 2
)

// exitStatus has the meaning of each status of one verb. An empty text is a status that the verb
// does not have.
type exitStatus struct {
	verb                string // empty: the agent
	good, found, failed string
}

// exitStatuses returns those of all verbs; help, manual pages and cmd/README.md show them.
func exitStatuses() []exitStatus {
	return []exitStatus{
		{"", "stopped by a signal, or the action of a flag is done", "any failure, or a wrong command line; also: IPVS appeared on a node that fell back to iptables mode, start the agent again", ""},
		{"plan", "printed; with --diff-against: no difference", "a manifest or a cluster IP cannot be read; with --strict: a Service is not served as it asks; with --diff-against: a difference", "no manifests, missing permissions, or a wrong command line"},
		{"show", "shown", "the named Service, set or chain does not exist", "no agent answers, the kernel cannot be read, or a wrong command line"},
		{"explain", "all is well", "a problem was found, no Service has this name or address, or no agent runs", "the kernel cannot be read, or a wrong command line"},
		{"diff", "equal", "a difference", "one side cannot be read, or a wrong command line"},
		{"audit", "the kernel has the desired rows, after repairs if needed", "some rows are not repaired yet, or part of the kernel cannot be read", "no agent answers, or a wrong command line"},
		{"top", "shown", "the named Service is unknown", "the kernel cannot be read or has no IPVS, or a wrong command line"},
		{"trace", "the time of --for is over, --packets were seen, or a signal stopped it", "", "missing permissions, or a wrong command line"},
		{"check", "the node can serve, possibly with warnings", "the node cannot serve", "a wrong command line"},
		{"cleanup", "nothing of kube-ipvs is left", "something remains, or an agent runs", "a wrong command line"},
		{"cluster", "all nodes answer and agree, and nothing is wrong with them", "a finding, a difference between nodes, or a node without an answer", "no node answers, no rights, no pods of agents, a wrong command line"},
		{"version", "printed", "", "a wrong command line"},
		{"completion", "printed", "", "a wrong command line"},
		{"man", "written", "", "the pages cannot be written, or a wrong command line"},
	}
}

// exitStatusOf returns the statuses of a command: those of the verb that it is below.
func exitStatusOf(cmd *cobra.Command) exitStatus {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	verb, _, _ := strings.Cut(path, " ")
	if isPlugin(cmd) {
		verb = "cluster"
	}
	for _, s := range exitStatuses() {
		if s.verb == verb {
			return s
		}
	}
	return exitStatus{}
}

// isPlugin reports whether a command is one of the plugin of kubectl.
func isPlugin(cmd *cobra.Command) bool { return cmd.Root().Name() == kubectlName }

// lines returns the statuses as help prints them.
func (s exitStatus) lines() (out []string) {
	for code, meaning := range []string{s.good, s.found, s.failed} {
		if meaning != "" {
			out = append(out, fmt.Sprintf("  %d  %s", code, meaning))
		}
	}
	return out
}

// exitError ends the program with a status of its own. Without err the output has the reason.
type exitError struct {
	code int
	err  error
}

// Error implements error.
func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e exitError) Unwrap() error { return e.err }

// asAnswer marks an error as the answer of a verb; nil stays nil.
func asAnswer(err error) error {
	if err == nil {
		return nil
	}
	return exitError{exitFound, err}
}

// report prints the error of a command and returns the exit status.
func report(cmd *cobra.Command, err error, w io.Writer) int {
	if err == nil {
		return 0
	}
	e := exitError{exitFailed, err}
	if !cmd.HasParent() && !isPlugin(cmd) {
		e.code = exitFound
	}
	errors.As(err, &e)
	if e.err != nil {
		fmt.Fprintf(w, "%s: %v\n", cmd.Root().Name(), e.err)
	}
	return e.code
}
