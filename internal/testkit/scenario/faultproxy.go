package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The kernel packages whose calls a fault proxy counts and lets fail.
const (
	pkgServers = "servers"
	pkgSets    = "sets"
	pkgRules   = "rules"
	pkgLinks   = "links"
)

// Packages returns the names of the kernel packages that faults use.
func Packages() []string { return []string{pkgServers, pkgSets, pkgRules, pkgLinks} }

var (
	errInjected = errors.New("fault injected by the test")
	errDead     = errors.New("the process is dead")
)

// quickCall is the deadline of a call. A real package bounds each by itself (its
// Options.Timeout), for the loop's context has no deadline.
const quickCall = 20 * time.Millisecond

// faultProxy sits between the agent and its kernel packages: it counts calls and lets them fail as
// planned. All calls of a dead process fail; nothing reaches the kernel.
type faultProxy struct {
	mu     sync.Mutex
	calls  map[string]int
	faults []*fault
	dead   bool
	crash  func() // called once in a new goroutine when a planned crash happens
	// hits counts the calls and rows that faults have hit; struck is called at the first and may be
	// nil.
	hits   int
	struck func()
	// called gets each call and may be nil.
	called func(pkg string, took time.Duration, err error)
}

// fault is one line of the plan. It hits those calls of its package that can fail in this way, from
// a number on, counted since the fault proxy was made. With text in row it hits rows of writes instead of
// calls.
type fault struct {
	pkg   string
	from  int
	times int // how many it may still hit; endless is until it is healed
	kind  FaultKind
	crash bool
	// trouble is what the script does not know of.
	trouble bool

	row string
	// one hits a row alone: that in the middle of the first write that it can hit, until it
	// is healed. row is that row, then, less its operation.
	one bool
}

const endless = -1

// done reports whether a fault is used up.
func (f *fault) done() bool { return f.times == 0 }

func newFaultProxy() *faultProxy { return &faultProxy{calls: map[string]int{}} }

// verdict is what is planned for a call: err is what its caller is told instead of what
// the package returns, the zero value lets it pass.
type verdict struct {
	err error
	// half asks a write to carry out the first part of its rows: the process dies in the
	// middle. whole asks for all.
	half, whole bool
	late        bool // the answer of the package comes shortly before the deadline
}

// enter counts a call and returns what is planned for it, at the deadline if it hangs.
func (t *faultProxy) enter(ctx context.Context, pkg string, a access) verdict {
	v, kind := t.judge(pkg, a)
	if kind == Hang {
		wait(ctx, quickCall)
		if t.isDead() {
			return verdict{err: errDead}
		}
	}
	return v
}

func (t *faultProxy) judge(pkg string, a access) (verdict, FaultKind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return verdict{err: errDead}, ""
	}
	t.calls[pkg]++
	f := t.find(pkg, a, nil)
	if f == nil {
		return verdict{}, ""
	}
	t.use(f)
	if f.kind == Late { // with whatever else is planned for it
		if other := t.find(pkg, a, f); other != nil {
			t.use(other)
			f = other
		}
	}
	switch {
	case f.crash:
		t.dead = true
		go t.crash()
		return verdict{err: errDead, half: true}, ""
	case f.kind == Late:
		return verdict{late: true}, Late
	}
	return verdict{err: f.kind.answer(pkg), whole: a > looks && f.kind.carriedOut(pkg)}, f.kind
}

// find returns the fault that hits a call, another one than that.
func (t *faultProxy) find(pkg string, a access, that *fault) *fault {
	for _, f := range t.faults {
		if f != that && f.row == "" && !f.one && f.pkg == pkg && !f.done() && t.calls[pkg] >= f.from && (f.crash || f.kind.can(pkg, a)) {
			return f
		}
	}
	return nil
}

// broken reports whether every call that reads a kernel package fails, until the fault proxy is healed.
func (t *faultProxy) broken(pkg string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.faults, func(f *fault) bool {
		return f.pkg == pkg && f.times == endless && f.row == "" && !f.one && f.kind.can(pkg, reads)
	})
}

// use notes a hit.
func (t *faultProxy) use(f *fault) {
	if f.times > 0 {
		f.times--
	}
	if !f.trouble {
		return
	}
	if t.hits++; t.hits == 1 {
		t.struck()
	}
}

// wait ends with the context or after the time.
func wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// aim has faults of one row choose theirs among those of a write that nothing else hits.
func (t *faultProxy) aim(pkg string, texts []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.faults {
		if !f.one || f.row != "" || f.pkg != pkg || t.calls[pkg] < f.from {
			continue
		}
		able := slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
			return !f.kind.canRow(pkg, text) || t.hitting(pkg, text) != nil
		})
		if len(able) > 0 {
			f.row = rowOf(able[len(able)/2])
		}
	}
}

// rowOf is the text of a row without the operation.
func rowOf(text string) string {
	_, row, _ := strings.Cut(text, " ")
	return row
}

// row returns what is planned for one row of a write.
func (t *faultProxy) row(pkg, text string) (whole bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.hitting(pkg, text)
	if f == nil {
		return false, nil
	}
	t.use(f)
	return f.kind.carriedOut(pkg), f.kind.answer(pkg)
}

// hitting returns the fault that hits a row.
func (t *faultProxy) hitting(pkg, text string) *fault {
	for _, f := range t.faults {
		switch {
		case f.row == "" || f.pkg != pkg || f.done() || !f.kind.canRow(pkg, text):
		case f.one && rowOf(text) == f.row, !f.one && strings.Contains(text, f.row):
			return f
		}
	}
	return nil
}

// plan adds a fault in the words of the step "fault".
func (t *faultProxy) plan(pkg string, spec []string) error {
	packages := []string{pkg}
	if pkg == "all" {
		packages = Packages()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range packages {
		if !slices.Contains(Packages(), r) {
			return fmt.Errorf("fault: no package %q: use all or one of %s", r, strings.Join(Packages(), ", "))
		}
		f, err := t.parse(r, spec)
		if err != nil {
			return err
		}
		t.faults = append(t.faults, f)
	}
	return nil
}

// arguments is how many words follow each way to say when, the kind aside.
var arguments = map[string]int{"next": 0, "always": 0, "nth": 1, "for": 1, "row": 1, "crash": 1}

func (t *faultProxy) parse(pkg string, spec []string) (*fault, error) {
	f := &fault{pkg: pkg, from: t.calls[pkg] + 1, times: 1, kind: Fail}
	n, known := arguments[spec[0]]
	if !known || len(spec) < 1+n || len(spec) > 2+n {
		return nil, fmt.Errorf("fault: %q is not next, always, nth N, for N, crash N or row TEXT, and a kind", strings.Join(spec, " "))
	}
	if len(spec) == 2+n {
		if f.kind = FaultKind(spec[1+n]); !slices.Contains(FaultKinds(), f.kind) {
			return nil, fmt.Errorf("fault: no kind %q: use one of %v", f.kind, FaultKinds())
		}
	}
	switch spec[0] {
	case "always":
		f.times = endless
		return f, nil
	case "row":
		f.times, f.row = endless, spec[1]
		if !f.kind.canRow(pkg, "") {
			return nil, fmt.Errorf("fault: a row of %s is never answered by %s", pkg, f.kind)
		}
		return f, nil
	case "next":
		return f, nil
	}
	count, err := strconv.Atoi(spec[1])
	if err != nil || count < 1 {
		return nil, fmt.Errorf("fault: %q is no number of a call, or of calls", spec[1])
	}
	if spec[0] != "for" {
		f.from, f.crash = t.calls[pkg]+count, spec[0] == "crash"
	} else {
		f.times = count
	}
	return f, nil
}

func (t *faultProxy) add(f *fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = append(t.faults, f)
}

func (t *faultProxy) heal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = nil
}

// endTrouble ends what the script does not know of.
func (t *faultProxy) endTrouble() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = slices.DeleteFunc(t.faults, func(f *fault) bool { return f.trouble })
}

// lasting tells how often trouble has hit, and whether it has to be ended.
func (t *faultProxy) lasting() (hits int, lasts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hits, slices.ContainsFunc(t.faults, func(f *fault) bool { return f.trouble && f.times == endless })
}

func (t *faultProxy) kill()   { t.setDead(true) }
func (t *faultProxy) revive() { t.setDead(false) }

func (t *faultProxy) setDead(dead bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = dead
}

func (t *faultProxy) isDead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

func (t *faultProxy) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.calls)
}

// tellTo has calls reported.
func (t *faultProxy) tellTo(called func(pkg string, took time.Duration, err error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.called = called
}

// tell reports a call that began so long ago.
func (t *faultProxy) tell(pkg string, began time.Time, err error) {
	t.mu.Lock()
	called := t.called
	t.mu.Unlock()
	if called != nil {
		called(pkg, time.Since(began), err)
	}
}

// one passes on a call that is carried out as a whole or not at all.
func (t *faultProxy) one(ctx context.Context, pkg string, a access, do func() error) (err error) {
	began := time.Now()
	defer func() { t.tell(pkg, began, err) }()
	v := t.enter(ctx, pkg, a)
	if v.err != nil && !v.whole {
		return v.err
	}
	err = do()
	if v.late {
		wait(ctx, quickCall/2)
	}
	if v.err != nil {
		return v.err
	}
	return err
}

// read passes on a call that reads rows.
func read[T any](ctx context.Context, t *faultProxy, pkg string, list func(context.Context) (T, error)) (rows T, err error) {
	err = t.one(ctx, pkg, reads, func() (err error) { rows, err = list(ctx); return err })
	return rows, err
}

// write passes a batch on, less the rows that are planned to fail.
func write[C any](ctx context.Context, t *faultProxy, pkg string, changes []C, text func(C) string, do func([]C) []error) []error {
	return writeUpTo(ctx, t, pkg, changes, firstHalf[C], text, do)
}

func firstHalf[C any](changes []C) []C { return changes[:len(changes)/2] }

// writeUpTo is write for a package that can die only in some places: part returns the rows that are
// then carried out.
func writeUpTo[C any](ctx context.Context, t *faultProxy, pkg string, changes []C, part func([]C) []C, text func(C) string, do func([]C) []error) []error {
	began := time.Now()
	v := t.enter(ctx, pkg, writes)
	defer func() { t.tell(pkg, began, v.err) }()
	errs := make([]error, len(changes))
	switch { // a row that the kernel refuses is refused for every process
	case v.half:
		writeRows(t, pkg, part(changes), errs, text, do)
	case v.err == nil || v.whole:
		writeRows(t, pkg, changes, errs, text, do)
	}
	if v.err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("%s: %w", text(changes[i]), v.err)
		}
		return errs
	}
	if v.late {
		wait(ctx, quickCall/2)
	}
	return errs
}

// writeRows carries out the rows that nothing is planned for, and notes the errors of all.
func writeRows[C any](t *faultProxy, pkg string, changes []C, errs []error, text func(C) string, do func([]C) []error) {
	texts := make([]string, len(changes))
	for i, c := range changes {
		texts[i] = text(c)
	}
	t.aim(pkg, texts)
	var good []C
	var at []int
	for i, c := range changes {
		whole, err := t.row(pkg, texts[i])
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", texts[i], err)
		}
		if err == nil || whole {
			good, at = append(good, c), append(at, i)
		}
	}
	if len(good) == 0 {
		return
	}
	for i, err := range do(good) {
		if errs[at[i]] == nil {
			errs[at[i]] = err
		}
	}
}
