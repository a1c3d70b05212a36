package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Check is one question to the node. Run returns nil if all is well, or an error that Lacking,
// Warning or Note has graded. Any other error means that there is no answer. Fix is what an operator can
// do about it, unless the error has a remedy of its own (Remedied).
type Check struct {
	Name string
	Run  func(context.Context) error
	Fix  string
}

// State is the answer to a Check.
type State string

// The answers, worst last.
const (
	OK     State = "ok"
	Warn   State = "warning" // works, but not as well as it should
	Lacks  State = "missing" // this node cannot do it
	Failed State = "failed"  // there is no answer
)

// Verdict is the outcome of one Check. Fix is empty where the state is OK.
type Verdict struct {
	Name   string
	State  State
	Detail string
	Fix    string
}

// graded is an error that carries its State.
type graded struct {
	state State
	error
}

// Unwrap returns the error that was graded.
func (g graded) Unwrap() error { return g.error }

// Lacking marks an error as "this node cannot": not an accident, but the answer.
// It is nil for nil.
func Lacking(err error) error { return grade(Lacks, err) }

// Warning marks an error as one that the node can live with. It is nil for nil.
func Warning(err error) error { return grade(Warn, err) }

// Note adds a fact to an answer that is all right.
func Note(format string, args ...any) error { return grade(OK, fmt.Errorf(format, args...)) }

// remedied is an error that knows what to do about it.
type remedied struct {
	fix string
	error
}

// Unwrap returns the error that has the remedy.
func (r remedied) Unwrap() error { return r.error }

// Remedied gives an error the remedy for the problem that was found, which then replaces the Fix of
// the Check. It is nil for nil.
func Remedied(err error, fix string) error {
	if err == nil {
		return nil
	}
	return remedied{fix, err}
}

// IsLacking reports whether an error means "this node cannot".
func IsLacking(err error) bool {
	var g graded
	return errors.As(err, &g) && g.state == Lacks
}

func grade(s State, err error) error {
	if err == nil {
		return nil
	}
	return graded{s, err}
}

// Run asks one question after the other and returns one verdict each. Once
// the context is over the rest fail unasked.
func Run(ctx context.Context, checks []Check) []Verdict {
	verdicts := make([]Verdict, len(checks))
	for i, c := range checks {
		err := ctx.Err()
		if err == nil {
			err = c.Run(ctx)
		}
		verdicts[i] = verdict(c, err)
	}
	return verdicts
}

// deniedFix is for a process that may not ask.
const deniedFix = "run as root, or with CAP_NET_ADMIN and CAP_NET_RAW"

func verdict(c Check, err error) Verdict {
	if err == nil {
		return Verdict{Name: c.Name, State: OK}
	}
	v := Verdict{Name: c.Name, State: Failed, Detail: err.Error(), Fix: c.Fix}
	if g := (graded{}); errors.As(err, &g) {
		v.State = g.state
	}
	if errors.Is(err, fs.ErrPermission) {
		v.Fix = deniedFix // the check itself has no answer
	}
	if r := (remedied{}); errors.As(err, &r) {
		v.Fix = r.fix
	}
	if v.State == OK {
		v.Fix = ""
	}
	return v
}
