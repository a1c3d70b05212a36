package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// FaultKind is a way in which a kernel call fails. One that is the name of an errno has the
// call answered by what its package makes of that.
type FaultKind string

// The kinds beside errnos.
const (
	Fail        FaultKind = "fail"        // an unknown error; nothing is carried out
	Hang        FaultKind = "hang"        // no answer before the deadline; nothing is carried out
	Late        FaultKind = "late"        // carried out, and answered shortly before the deadline
	Lost        FaultKind = "lost"        // carried out, but not answered
	Interrupted FaultKind = "interrupted" // a list that changes while it is read, however often that is begun
)

// errnos are those that faults know.
var errnos = map[FaultKind]syscall.Errno{
	"ENOBUFS": syscall.ENOBUFS, "EBUSY": syscall.EBUSY, "ENOMEM": syscall.ENOMEM,
	"EEXIST": syscall.EEXIST, "ENOENT": syscall.ENOENT, "EPERM": syscall.EPERM,
}

// FaultKinds lists all, errnos last.
func FaultKinds() []FaultKind {
	return append([]FaultKind{Fail, Hang, Late, Lost, Interrupted}, Errnos()...)
}

// Errnos lists those that are errnos.
func Errnos() []FaultKind { return slices.Sorted(maps.Keys(errnos)) }

// words are the errors by which a package reports an answer of the kernel to its callers.
type words struct {
	// unknown is the error of a write without an answer, whose outcome is unknown.
	unknown error
	errnos  map[FaultKind]error
	// interrupted is the error of a list; nil if the package has no such error.
	interrupted error
}

var dictionary = map[string]words{
	// answer.fault, and exchange where the answer is missing
	pkgServers: {
		unknown: vserver.ErrUnknown, interrupted: vserver.ErrInterrupted,
		errnos: map[FaultKind]error{"EBUSY": vserver.ErrBusy, "EEXIST": vserver.ErrExist, "ENOENT": vserver.ErrNotExist, "ENOBUFS": vserver.ErrUnknown},
	},
	pkgSets: {
		interrupted: ipset.ErrInterrupted,
		errnos:      map[FaultKind]error{"EBUSY": ipset.ErrBusy, "EEXIST": ipset.ErrExist, "ENOENT": ipset.ErrNotExist},
	},
	// the errors of the tools for an errno, by classify: for EPERM they cannot fetch the
	// generation
	pkgRules: {
		errnos: map[FaultKind]error{"EBUSY": rules.ErrBusy, "EEXIST": rules.ErrExist, "ENOENT": rules.ErrNotExist, "EPERM": rules.ErrUnsupported},
	},
	// sentinels, and socketError
	pkgLinks: {
		unknown: link.ErrBusy, interrupted: link.ErrInterrupted,
		errnos: map[FaultKind]error{"EBUSY": link.ErrBusy, "EEXIST": link.ErrExist, "ENOENT": link.ErrNotExist, "ENOMEM": link.ErrBusy, "ENOBUFS": link.ErrBusy},
	},
}

// answer is what a package returns for a call that went wrong so.
func (k FaultKind) answer(pkg string) error {
	w := dictionary[pkg]
	switch k {
	case Hang, Lost:
		return because(w.unknown, context.DeadlineExceeded)
	case Interrupted:
		return because(w.interrupted, nil)
	}
	if errno, is := errnos[k]; is {
		return because(w.errnos[k], errno)
	}
	return errInjected
}

// because joins the error of a package, the kernel's own and that of the test; none may be there.
func because(word, kernel error) error {
	err := errInjected
	if kernel != nil {
		err = fmt.Errorf("%w: %w", err, kernel)
	}
	if word != nil {
		err = fmt.Errorf("%w: %w", word, err)
	}
	return err
}

// carriedOut reports whether the kernel did what was asked although the caller gets an error. Over
// netlink ENOBUFS is a buffer that had no room for the answer.
func (k FaultKind) carriedOut(pkg string) bool {
	return k == Lost || k == "ENOBUFS" && pkg != pkgRules
}

// access is what a call is for.
type access uint8

const (
	reads   access = iota // rows, all or an error
	looks                 // one of many pieces of a list, which may change meanwhile
	writes                // rows, an error for each
	makes                 // one object
	removes               // one object
)

// can reports whether a call may fail in this way by the contract of its package. Impossible
// answers are excluded: a list that misses existing rows with "does not exist", and errors that a
// package handles itself, such as the addition of an existing entry.
func (k FaultKind) can(pkg string, a access) bool {
	switch k {
	case Interrupted:
		return a == reads && dictionary[pkg].interrupted != nil
	case Lost:
		return a > looks // to whom it is Hang
	case "ENOENT":
		return a == writes
	case "EEXIST":
		if pkg == pkgServers || pkg == pkgRules {
			return a == writes
		}
		return a == makes
	}
	return true
}

// canRow is can for one row of a write, of which text begins with the operation.
func (k FaultKind) canRow(pkg, text string) bool {
	switch k {
	case Hang, Late, Interrupted:
		return false
	case "ENOENT", "EEXIST":
		return !strings.HasPrefix(text, "del") && (pkg == pkgServers || pkg == pkgRules || pkg == pkgLinks && k == "ENOENT")
	}
	return true
}
