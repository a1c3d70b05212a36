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
		{"", "ended when it was told to, or did what a flag asks for", "any failure, a wrong command line too; IPVS appeared on a node that fell back to iptables mode: start it again", ""},
		{"plan", "printed; with --diff-against: no difference", "a manifest or a cluster IP cannot be read; with --strict: something is not served; with --diff-against: a difference", "no manifests, no rights, a wrong command line"},
		{"show", "shown", "the Service, set or chain that was named does not exist", "no agent answers, the kernel cannot be read, a wrong command line"},
		{"explain", "all is well", "something is wrong, nothing has that name or address, or no agent runs", "the kernel cannot be read at all, a wrong command line"},
		{"diff", "equal", "a difference", "one side cannot be read, a wrong command line"},
		{"audit", "the kernel is as it should be, or is so again", "rows are not in place, or something cannot be read", "no agent answers, a wrong command line"},
		{"top", "shown", "nothing is known of the Service that was named", "the kernel cannot be read, no IPVS, a wrong command line"},
		{"trace", "ended in time, after --packets, or when it was told to", "", "no right to look, a wrong command line"},
		{"check", "the node can carry Services, with warnings or without", "it cannot", "a wrong command line"},
		{"cleanup", "nothing of kube-ipvs is left", "something is left, or an agent runs", "a wrong command line"},
		{"version", "printed", "", "a wrong command line"},
		{"completion", "printed", "", "a wrong command line"},
		{"man", "written", "", "the pages cannot be written, a wrong command line"},
	}
}

// exitStatusOf returns the statuses of a command: those of the verb that it is below.
func exitStatusOf(cmd *cobra.Command) exitStatus {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	verb, _, _ := strings.Cut(path, " ")
	for _, s := range exitStatuses() {
		if s.verb == verb {
			return s
		}
	}
	return exitStatus{}
}

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
	if !cmd.HasParent() {
		e.code = exitFound
	}
	errors.As(err, &e)
	if e.err != nil {
		fmt.Fprintln(w, "kube-ipvs:", e.err)
	}
	return e.code
}
