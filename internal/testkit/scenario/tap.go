package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The rooms whose calls a tap counts and lets fail.
const (
	roomServers = "servers"
	roomSets    = "sets"
	roomRules   = "rules"
	roomLinks   = "links"
)

// Rooms lists the kernel rooms by the names that faults use.
func Rooms() []string { return []string{roomServers, roomSets, roomRules, roomLinks} }

var (
	errInjected = errors.New("fault injected by the test")
	errDead     = errors.New("the process is dead")
)

// tap sits between the agent and its kernel rooms: it counts calls and lets them
// fail as planned. All calls of a dead process fail; nothing reaches the kernel.
type tap struct {
	mu     sync.Mutex
	calls  map[string]int
	faults []fault
	dead   bool
	crash  func() // called once in a new goroutine when a planned crash happens
}

// fault is one line of the plan. nth counts the calls of its room since the tap
// was made; 0 means every call. A row fault hits rows of writes, not calls.
type fault struct {
	room  string
	nth   int
	row   string
	crash bool
}

func newTap() *tap { return &tap{calls: map[string]int{}} }

// enter counts a call and returns what is planned for it. half asks a write to
// carry out the first part of its rows only: the process dies in the middle.
func (t *tap) enter(room string) (half bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return false, errDead
	}
	t.calls[room]++
	for _, f := range t.faults {
		if f.row != "" || f.room != room || f.nth != 0 && f.nth != t.calls[room] {
			continue
		}
		if !f.crash {
			return false, errInjected
		}
		t.dead = true
		go t.crash()
		return true, errDead
	}
	return false, nil
}

func (t *tap) row(room, text string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.faults {
		if f.row != "" && f.room == room && strings.Contains(text, f.row) {
			return errInjected
		}
	}
	return nil
}

// plan adds a fault in the words of the step "fault".
func (t *tap) plan(room string, spec []string) error {
	rooms := []string{room}
	if room == "all" {
		rooms = Rooms()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range rooms {
		if !slices.Contains(Rooms(), r) {
			return fmt.Errorf("fault: no room %q: use all or one of %s", r, strings.Join(Rooms(), ", "))
		}
		f, err := t.parse(r, spec)
		if err != nil {
			return err
		}
		t.faults = append(t.faults, f)
	}
	return nil
}

func (t *tap) parse(room string, spec []string) (fault, error) {
	f := fault{room: room}
	switch {
	case len(spec) == 1 && spec[0] == "next":
		f.nth = t.calls[room] + 1
	case len(spec) == 1 && spec[0] == "always":
	case len(spec) == 2 && spec[0] == "row":
		f.row = spec[1]
	case len(spec) == 2 && (spec[0] == "nth" || spec[0] == "crash"):
		n, err := strconv.Atoi(spec[1])
		if err != nil || n < 1 {
			return f, fmt.Errorf("fault: %q is no number of a call", spec[1])
		}
		f.nth, f.crash = t.calls[room]+n, spec[0] == "crash"
	default:
		return f, fmt.Errorf("fault: %q is not next, always, nth N, crash N or row TEXT", strings.Join(spec, " "))
	}
	return f, nil
}

func (t *tap) heal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = nil
}

func (t *tap) kill()   { t.setDead(true) }
func (t *tap) revive() { t.setDead(false) }

func (t *tap) setDead(dead bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = dead
}

func (t *tap) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.calls)
}

// write passes a batch on, less the rows that are planned to fail.
func write[C any](t *tap, room string, changes []C, text func(C) string, do func([]C) []error) []error {
	return writeUpTo(t, room, changes, firstHalf[C], text, do)
}

func firstHalf[C any](changes []C) []C { return changes[:len(changes)/2] }

// writeUpTo is write for a room that can die in some places only: part are the rows
// that are carried out then.
func writeUpTo[C any](t *tap, room string, changes []C, part func([]C) []C, text func(C) string, do func([]C) []error) []error {
	half, err := t.enter(room)
	if half {
		refused := func(c C) bool { return t.row(room, text(c)) != nil } // by the kernel, whoever asks
		if some := slices.DeleteFunc(slices.Clone(part(changes)), refused); len(some) > 0 {
			do(some)
		}
	}
	errs := make([]error, len(changes))
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("%s: %w", text(changes[i]), err)
		}
		return errs
	}
	var good []C
	var at []int
	for i, c := range changes {
		if errs[i] = t.row(room, text(c)); errs[i] == nil {
			good, at = append(good, c), append(at, i)
		}
	}
	if len(good) == 0 {
		return errs
	}
	for i, err := range do(good) {
		errs[at[i]] = err
	}
	return errs
}
