package scenario

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
)

// call is one use of a step.
type call struct {
	ts   *testscript.TestScript
	neg  bool
	args []string
}

// step is a command of the scenario language.
type step struct {
	usage       string
	least, most int // arguments
	negatable   bool
	run         func(s *script, c call) error
}

const many = math.MaxInt

var steps = map[string]step{
	"start":      {usage: "start [-audit] [-async] [flag...]", most: many, run: (*script).start},
	"terminate":  {usage: "terminate [-9]", most: 1, run: (*script).terminate},
	"restart":    {usage: "restart [-9] [-async]", most: 2, run: (*script).restart},
	"put":        {usage: "put FILE TARGET", least: 2, most: 2, run: (*script).put},
	"expect":     {usage: "expect KIND FILE [REGEXP]", least: 2, most: 3, run: (*script).expect},
	"expect-log": {usage: "[!] expect-log REGEXP", least: 1, most: 1, negatable: true, run: (*script).expectLog},
	"settle":     {usage: "settle", run: func(s *script, _ call) error { return s.settle() }},
	"mark":       {usage: "mark", run: (*script).mark},
	"written":    {usage: "written TABLE N", least: 2, most: 2, run: (*script).written},
	"plan":       {usage: "plan", run: (*script).plan},
	"foreign":    {usage: "foreign", run: func(s *script, _ call) error { return s.comparator.Foreign() }},
	"agree":      {usage: "agree", run: (*script).agree},
	"look":       {usage: "look", run: (*script).look},
	"host":       {usage: "host [ADDRESS...]", most: many, run: func(s *script, c call) error { return withAddresses(c.args, s.driver.Host) }},
	"gateway":    {usage: "gateway [ADDRESS...]", most: many, run: func(s *script, c call) error { return withAddresses(c.args, s.driver.Gateway) }},
	"failing":    {usage: "failing [ENDPOINT...]", most: many, run: (*script).failing},
	"kernel":     {usage: "kernel TOOL ARGUMENT...", least: 2, most: many, run: func(s *script, c call) error { return s.driver.Tool(c.args) }},
	"damage":     {usage: "damage TOOL ARGUMENT...", least: 2, most: many, run: (*script).damage},
	"fault":      {usage: "fault PACKAGE next|always|nth N|for N|crash N|row TEXT [KIND]", least: 2, most: 4, run: func(s *script, c call) error { return s.driver.Fault(c.args[0], c.args[1:]) }},
	"heal":       {usage: "heal", run: func(s *script, _ call) error { s.driver.Heal(); return nil }},
	"cleanup":    {usage: "cleanup", run: func(s *script, _ call) error { return s.driver.Cleanup(s.last) }},
}

// start runs the agent. With -async it does not wait for the first sync, which
// may never come.
func (s *script) start(c call) error {
	s.last, s.async = Start{}, false
	for _, a := range c.args {
		switch a {
		case "-audit":
			s.last.Audit = true
		case "-async":
			s.async = true
		default:
			s.last.Flags = append(s.last.Flags, a)
		}
	}
	return s.launch()
}

// withAddresses reads the arguments of a step as addresses.
func withAddresses(args []string, do func([]netip.Addr) error) error {
	addrs := make([]netip.Addr, len(args))
	for i, text := range args {
		var err error
		if addrs[i], err = netip.ParseAddr(text); err != nil {
			return err
		}
	}
	return do(addrs)
}

// failing reads its arguments as endpoints.
func (s *script) failing(c call) error {
	found := map[netip.AddrPort]string{}
	for _, text := range c.args {
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			return err
		}
		found[at] = "it does not answer"
	}
	return s.driver.Failing(found)
}

func (s *script) terminate(c call) error {
	switch strings.Join(c.args, " ") {
	case "":
		return s.driver.Stop()
	case "-9":
		return s.driver.Kill()
	}
	return fmt.Errorf("terminate %s: the only signal is -9", c.args[0])
}

// damage does not mind that what it means to damage is not there.
func (s *script) damage(c call) error {
	if err := s.driver.Tool(c.args); err != nil {
		c.ts.Logf("%v", err)
	}
	return nil
}

// look lets the loop come round, whatever it answers.
func (s *script) look(c call) error {
	if _, err := s.status(); err != nil {
		c.ts.Logf("%v", err)
	}
	return nil
}

func (s *script) agree(call) error {
	_, deadline := s.driver.Pace()
	return s.comparator.Agree(s.last, deadline)
}

func (s *script) restart(c call) error {
	end := s.driver.Stop
	s.async = false
	for _, a := range c.args {
		switch a {
		case "-9":
			end = s.driver.Kill
		case "-async":
			s.async = true
		default:
			return fmt.Errorf("restart %s: the only signal is -9", a)
		}
	}
	if err := end(); err != nil {
		return err
	}
	return s.launch()
}

// put replaces a file in one step, as cp does not: a reader sees the old content or
// the new.
func (s *script) put(c call) error {
	return replaceFile(c.ts.MkAbs(c.args[1]), c.ts.ReadFile(c.args[0]))
}

// expect waits for the kernel to equal a file.
func (s *script) expect(c call) error {
	kind, file, filter := c.args[0], c.args[1], strings.Join(c.args[2:], "")
	read := func() (string, error) { return look(s.driver, kind, filter) }
	if s.opts.Update {
		return s.rewrite(c.ts, file, read)
	}
	want := c.ts.ReadFile(file)
	var got string
	err := s.await(func() (err error) {
		if got, err = read(); err == nil && got != want {
			err = errDifferent
		}
		return err
	})
	if errors.Is(err, errDifferent) {
		return fmt.Errorf("%s are not %s (-want +got):\n%s", kind, file, cmp.Diff(lines(want), lines(got)))
	}
	return err
}

// look reads one kind of rows, those that match the filter.
func look(d Driver, kind, filter string) (string, error) {
	text, err := d.Text(kind)
	if err == nil {
		text, err = Normal(kind, text)
	}
	if err == nil {
		text, err = matching(text, filter)
	}
	return text, err
}

func (s *script) expectLog(c call) error {
	re, err := regexp.Compile(c.args[0])
	if err != nil {
		return err
	}
	if c.neg {
		if at := re.FindString(s.driver.Log()); at != "" && !s.opts.Rough {
			return fmt.Errorf("the agent logged %q", at)
		}
		return nil
	}
	return s.await(func() error {
		switch {
		case re.MatchString(s.driver.Log()):
			return nil
		case s.opts.Crash && s.rose():
			return s.ready() // the agent that saw it died before it could report it
		}
		return fmt.Errorf("the agent did not log %q", re)
	})
}

// rose reports whether an agent crashed and another one runs in its place.
func (s *script) rose() bool {
	f, ok := s.driver.(*Fakes)
	return ok && f.Rose()
}

func (s *script) mark(call) error {
	if err := s.settle(); err != nil || s.opts.Rough {
		return err
	}
	status, err := s.status()
	s.base = status.Written
	return err
}

func (s *script) written(c call) error {
	want, err := strconv.ParseUint(c.args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("number of rows: %w", err)
	}
	if err := s.settle(); err != nil || s.opts.Rough || s.opts.Update {
		return err
	}
	status, err := s.status()
	if err != nil {
		return err
	}
	got := map[string]uint64{}
	for table, n := range status.Written {
		got[table] = n - s.base[table]
		got["total"] += got[table]
	}
	if got[c.args[0]] != want {
		return fmt.Errorf("%d rows written to %s, want %d (of all: %v)", got[c.args[0]], c.args[0], want, got)
	}
	return nil
}

// plan waits for the kernel to be the result of a fresh compile of the files.
func (s *script) plan(call) error {
	return s.await(func() error {
		diff, err := Differ(s.driver, s.last)
		if err == nil && diff != "" {
			err = fmt.Errorf("the kernel is not as planned (-plan +kernel):\n%s", diff)
		}
		return err
	})
}

// Differ compares the whole kernel with a fresh compile of the manifests for an agent that is
// started so, and returns the difference.
func Differ(d Driver, s Start) (string, error) {
	planned, err := d.Plan(s)
	if err != nil {
		return "", err
	}
	for _, kind := range Kinds() {
		want, err := Normal(kind, planned[kind])
		if err != nil {
			return "", fmt.Errorf("plan of %s: %w", kind, err)
		}
		got, err := look(d, kind, "")
		if err != nil {
			return "", err
		}
		if diff := cmp.Diff(lines(want), lines(got)); diff != "" {
			return kind + ":\n" + diff, nil
		}
	}
	return "", nil
}
